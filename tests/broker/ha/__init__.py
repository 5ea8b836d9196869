"""Tests of skylarkmq.broker.ha."""
