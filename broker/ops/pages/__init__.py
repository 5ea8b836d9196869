"""HTTP pages of the daemons: health, metrics, and the port of the console."""
