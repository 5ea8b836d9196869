"""The daemons: broker and name server, in five layers (docs/architecture.md)."""
