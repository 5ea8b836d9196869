"""Tests of clients/sdk/messages."""
