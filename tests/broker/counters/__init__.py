"""Tests of broker/counters."""
