"""Tests of broker/remoting."""
