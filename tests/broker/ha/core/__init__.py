"""Tests of the pure core of replication: events in, effects out."""
