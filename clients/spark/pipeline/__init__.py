"""The command `mqspark-pipeline`: topics to Parquet. `command` is its entry, `job` the Spark queries."""
