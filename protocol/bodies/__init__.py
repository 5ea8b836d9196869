"""JSON bodies of requests and responses, a module per family: heartbeat, route, topic, offsets."""
