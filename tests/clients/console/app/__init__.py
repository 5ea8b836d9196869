"""Tests of clients/console/app."""
