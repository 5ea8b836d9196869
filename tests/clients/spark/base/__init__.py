"""Tests of clients/spark/base."""
