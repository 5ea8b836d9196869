"""Which messages a subscription wants: by tag (tag.py), later by SQL92 over the properties.

A broker tests hashes, in the queue unit, without looking at the message; a client tests the text, because hashes
collide. Source: docs/formats.md, "Subscriptions".
"""
