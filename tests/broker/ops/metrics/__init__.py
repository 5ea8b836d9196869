"""Tests of broker/ops/metrics."""
