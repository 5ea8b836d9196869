"""Programs that use a broker: the SDK, `mqadmin`, the console, `mqbench`, and readers for Arrow and Spark."""
