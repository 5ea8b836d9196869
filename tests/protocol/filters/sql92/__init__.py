"""Tests of protocol/filters/sql92."""
