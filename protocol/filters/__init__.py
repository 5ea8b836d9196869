"""Which messages a subscription wants: by tag (tag.py), or by SQL92 over the properties (sql92).

Of tags a broker tests hashes, in the queue unit, without looking at the message; a client tests the text, because
hashes collide. For SQL92 it looks at the message's properties, and the client relies on it.
Source: docs/formats.md, "Subscriptions".
"""
