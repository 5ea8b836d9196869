"""Tests of broker.delivery.delay."""
