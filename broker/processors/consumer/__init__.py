"""Requests of clients other than sends and pulls: heartbeats, committed offsets, queue locks, negative
acknowledgements.

One module for each family of request codes. Requests of operators are in `admin`.
"""
