"""Tests of broker/delivery."""
