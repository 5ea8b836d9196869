"""`format("rocketmq-store")`: reads a store directory without a broker.

It reads log, queues and index in the layouts of `skylarkmq.protocol`, and never writes.
"""
