"""Topics, subscription groups, consumer offsets and client sessions, with their JSON files."""
