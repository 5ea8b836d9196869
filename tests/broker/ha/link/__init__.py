"""Tests of the replication link."""
