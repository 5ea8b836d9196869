"""Tests of broker/namesrv."""
