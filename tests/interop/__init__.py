"""Official RocketMQ clients, unchanged from their registries, against a running broker."""
