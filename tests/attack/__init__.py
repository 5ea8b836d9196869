"""Attacks on a running daemon, and the guarantees that must hold afterwards."""
