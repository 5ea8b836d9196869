"""The jobs that come with the Spark formats: lag history, dead letters, message traces, duplicates.

    lag.py, dead_letters.py, traces.py, duplicates.py     DataFrames to DataFrames, and a summary
    *_command.py                                          arguments, reading, tables, JSON and plots around them
    messages.py                                           messages of a topic, a store directory or an archive
    arguments.py, output.py, chart.py                     the parts that the commands share

A summary is a struct. Its JSON (`--json`) is documented in docs/use/spark/jobs.md; `schema` in it names the version.
"""
