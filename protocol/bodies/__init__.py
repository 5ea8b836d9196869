"""The JSON bodies of requests and responses, one module per family. Some of them are also files of `config/`.

Every body is a `Body` (body.py): a struct with Python names for RocketMQ's members, RocketMQ's defaults for absent
members, and the methods `decode` and `encode`. Source: docs/reference/wire.md, "JSON bodies".
"""
