"""Pools in a row: prefill, KV transfer, decode, answer."""
