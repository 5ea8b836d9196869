"""Tests of broker.delivery.timer."""
