"""Collectors: what the parts' statistics come to as metrics of the catalogue, a module per kind of part."""
