"""Delivery of messages: long polling, delayed messages, timers, transactions, queue locks, and notices to clients."""
