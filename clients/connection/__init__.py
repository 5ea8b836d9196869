"""Connections of a client: sockets, routes, heartbeats, TLS, signatures, and requests that brokers send to clients.

`client` is the entry: one `Client` may be shared by the producers and consumers of a process. Nothing here knows how
messages are produced or consumed.
"""
