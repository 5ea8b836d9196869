"""Tests of broker/app."""
