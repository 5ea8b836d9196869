"""Collectors: convert the statistics of the parts to metrics of the catalogue; one module per kind of part."""
