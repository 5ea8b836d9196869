"""Tests of broker/ops/pages."""
