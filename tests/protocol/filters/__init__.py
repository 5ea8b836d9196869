"""Tests of protocol/filters."""
