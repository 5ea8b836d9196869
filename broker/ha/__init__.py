"""Replication of a broker's log to other machines. `core` decides, without I/O; the other modules carry it out."""
