"""A store directory read from outside: its log, its queues, its index, and what of them a consumer might pull."""
