"""The command `mqspark-pipeline`: topics to Parquet. `command` is the entry point; `job` starts the Spark queries."""
