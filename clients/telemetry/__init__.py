"""Hooks that observe: spans for OpenTelemetry, metrics for Prometheus. Nothing else of the SDK imports them."""
