"""Large numbers of random inputs: each decodes, or closes the connection, and has no other effect."""
