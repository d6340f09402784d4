"""Fixed numbers of requests: closed loops and closed batches."""
