"""Tests of broker/metadata."""
