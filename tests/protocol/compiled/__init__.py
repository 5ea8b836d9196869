"""Tests of protocol.compiled."""
