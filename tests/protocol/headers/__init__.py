"""Tests of protocol/headers."""
