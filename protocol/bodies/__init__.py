"""The JSON bodies of requests and answers, some of which are files of `config/` too: a module per family.

Every body is a `Body` (body.py): a struct with our names for RocketMQ's members, the defaults that RocketMQ assumes for
absent ones, `decode` and `encode`. Source: docs/formats.md, "JSON bodies".
"""
