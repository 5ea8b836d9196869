"""Tests of clients/sdk/base."""
