"""The message index: from `topic#key` to the physical offsets of messages.

`index` owns the files, `builder` feeds them from dispatched messages and from the log, `search` and `key_query` find
messages. The layout of one file is in `file`.
"""
