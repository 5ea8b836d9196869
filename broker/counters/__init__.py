"""Counters of messages by topic and group, their rates, and the latencies of puts."""
