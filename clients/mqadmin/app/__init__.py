"""The command line: the groups of commands, errors, exit codes, and the options as RocketMQ's tool reads them."""
