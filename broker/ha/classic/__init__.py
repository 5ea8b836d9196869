"""Replication as RocketMQ's brokers do it with `brokerRole`: one master, slaves that copy its log, no election.

Source: docs/formats.md, "Classic replication".
"""
