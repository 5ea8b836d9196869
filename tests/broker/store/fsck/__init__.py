"""Tests of broker.store.fsck."""
