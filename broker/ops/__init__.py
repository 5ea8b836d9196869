"""Monitoring over HTTP: health pages and Prometheus metrics."""
