"""Messages outside of a request: prepared for sending, as stored by a broker, and as results of sends."""
