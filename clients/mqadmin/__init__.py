"""`mqadmin`: the command line for operators, with commands for people in groups, and the commands of RocketMQ's tool.

`app.cli` is the entry point.
"""
