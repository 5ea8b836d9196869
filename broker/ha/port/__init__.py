"""The port for replicas: it serves slaves of RocketMQ, or the followers of a link."""
