"""Hooks for telemetry: spans for OpenTelemetry, metrics for Prometheus. No other module of the SDK imports them."""
