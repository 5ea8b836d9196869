"""Dispatch of stored messages to queues, arrivals and the index."""
