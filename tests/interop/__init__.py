"""Official RocketMQ clients, as their registries deliver them, against a started daemon."""
