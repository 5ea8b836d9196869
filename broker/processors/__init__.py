"""Business layer: a request into calls on the layers below, a result into a response."""
