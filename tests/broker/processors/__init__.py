"""Tests of broker/processors."""
