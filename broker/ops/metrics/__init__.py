"""What the metrics page of each daemon contains: the collectors, and the constant labels."""
