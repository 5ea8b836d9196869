"""Calls from the broker to clients: requests, notifications of groups, replies."""
