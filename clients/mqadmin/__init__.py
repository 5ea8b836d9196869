"""`mqadmin`: the command line for operators, with commands for people in groups, and those of RocketMQ's tool.

`app.cli` is the entry point.
"""
