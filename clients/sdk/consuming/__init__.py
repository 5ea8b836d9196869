"""Consumers: group membership, rebalancing, pulling, handler calls, acknowledgments, and committed offsets.

The public classes are in `push_consumer`, `pull_consumer` and `received_message`. Code that producers share is in
`connection` and `messages`.
"""
