"""`mqbroker store …`: commands that work on a store directory, without the parts of a broker."""
