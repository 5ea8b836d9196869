"""Replication as RocketMQ's brokers do it with `brokerRole`: one master, slaves that copy its log, no election.

Source: docs/reference/wire.md, "Classic replication".
"""
