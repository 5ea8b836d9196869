"""Tests of broker/ops."""
