"""`format("rocketmq")` for writing: options, rows to messages, sends, and the ledger of committed batches."""
