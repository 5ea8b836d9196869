"""Tests of broker/ha/port."""
