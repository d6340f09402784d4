"""Several classes at c servers: priorities, shortest first, reserved servers."""
