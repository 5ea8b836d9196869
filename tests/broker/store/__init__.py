"""Tests of broker/store."""
