"""Business layer: translates requests into calls on the layers below, and their results into responses."""
