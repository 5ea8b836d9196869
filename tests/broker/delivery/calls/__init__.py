"""Tests of broker/delivery/calls."""
