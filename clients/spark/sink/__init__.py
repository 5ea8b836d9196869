"""`format("rocketmq")` for writing: options, rows into messages, sends, and the ledger of committed batches."""
