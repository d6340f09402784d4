"""The batching replica and pools of it: number present, KV memory, prefill, laws of the four metrics."""
