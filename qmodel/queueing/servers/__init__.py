"""Queues with c servers: M/M/c, M/G/c, and exact solutions of M/PH/c and M/D/c."""
