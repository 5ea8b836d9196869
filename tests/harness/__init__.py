"""Shared test code: free ports, daemon processes, peers, and a disk that fails on demand."""
