"""`format("rocketmq")` for reading: options, planning on the driver, and pulls on the executors."""
