"""Connections of a client: sockets, routes, heartbeats, TLS, and requests that brokers send to clients.

`client` is the entry point: producers and consumers of a process may share one `Client`. Modules here do not depend on
how messages are produced or consumed.
"""
