"""Plan LLM inference fleets: which GPUs, how many, in which layout, at the least cost within latency targets."""
