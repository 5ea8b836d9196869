"""`mqadmin`: the command line for operators, with the commands of RocketMQ's tool. `app` is the entry point."""
