"""Storage: the commit log, its consume queues and their files. `MessageStore` is the entry point."""
