"""Tests of clients/terminal."""
