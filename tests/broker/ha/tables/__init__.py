"""Tests of broker/ha/tables."""
