"""Tests of broker/store/files."""
