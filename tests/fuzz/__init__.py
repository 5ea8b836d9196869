"""Random input in large numbers: it decodes or it closes the connection, nothing else."""
