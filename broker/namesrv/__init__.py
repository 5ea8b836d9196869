"""The name server: the route table, its processors, and the server itself. It does not use the store or delivery."""
