"""The batching replica under bursty arrivals: rate phases, and the chain of number and phase."""
