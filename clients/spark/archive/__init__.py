"""`mqspark-archive`: moves old segments of a commit log to Parquet files or an Iceberg table, and verifies them.

    command.py     the command line
    job.py         one run: plan, archive, move the mark
    planning.py    which ranges of the log are old enough
    runners.py     where ranges are archived: here, in worker processes, or on Spark
    task.py        one range of a segment: read, write, verify, publish
    pieces.py      the messages of a range, sorted, 64 MiB of log at a time
    columns.py     messages as Arrow columns
    files.py       one Parquet file: written, and read back
    directory.py   the archive's directory: names, manifest, atomic steps
    iceberg.py     the files as an Iceberg table
    mark.py        the archive mark in the store directory

Documentation: docs/use/spark/archive.md.
"""
