"""Tests of clients/mqadmin/app."""
