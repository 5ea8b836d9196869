"""Tests of broker/app/sections."""
