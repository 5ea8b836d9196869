"""Requests of operators: mqadmin, the dashboard, the exporter, and clients that create topics."""
