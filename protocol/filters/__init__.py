"""Which messages a subscription selects: tag expressions by hash and by text."""
