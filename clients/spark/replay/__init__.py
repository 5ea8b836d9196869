"""The command `mqspark-replay`: messages of an archive, a store directory or a topic are sent again, each once.

`command` is the command line; `replay` is the Python entry: `Replay` and `run`.
"""
