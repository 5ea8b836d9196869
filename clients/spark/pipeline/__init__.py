"""The command `mqspark-pipeline`: topics to tables. `command` is the entry point; `queries` starts the queries."""
