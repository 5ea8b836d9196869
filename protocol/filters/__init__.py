"""Message filters of subscriptions: by tag (tag.py), or by SQL92 over the properties (sql92).

For tags the broker compares hashes in the queue unit and does not read the message. Hashes collide, so the client
compares the text as well. For SQL92 the broker reads the message's properties, and the client does not check again.
Source: docs/reference/wire.md, "Subscriptions".
"""
