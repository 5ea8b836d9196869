"""The daemon: its command line, its parts made from the configuration, and the order of its start and stop."""
