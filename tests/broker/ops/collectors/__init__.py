"""Collectors."""
