"""Replication: the model of its rules, and a simulator of whole groups around the real core."""
