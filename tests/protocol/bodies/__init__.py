"""Tests of protocol/bodies."""
