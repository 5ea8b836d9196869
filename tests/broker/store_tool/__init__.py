"""Tests of broker/store_tool."""
