"""The message index: from `topic#key` to the physical offsets of messages.

`index` owns the files, `builder` adds keys from dispatched messages and from the log, `search` and `key_query` find
messages. `file` defines the layout of a file.
"""
