"""Hooks: spans for OpenTelemetry, metrics for Prometheus; and the format of RocketMQ's trace records."""
