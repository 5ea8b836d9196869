"""Consumers: group membership, rebalancing, pulling, handler calls, and committed offsets.

`push_consumer` and `pull_consumer` are the public classes. Everything that is shared with producers is in `connection`.
"""
