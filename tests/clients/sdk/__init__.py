"""Tests of clients/sdk."""
