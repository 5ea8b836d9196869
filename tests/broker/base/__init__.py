"""Tests of broker/base."""
