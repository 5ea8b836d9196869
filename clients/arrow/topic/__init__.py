"""Reads ranges of topics from brokers: metadata of the cluster, pipelined pulls, and record batches."""
