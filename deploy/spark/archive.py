"""Script for spark-submit that runs the archive job, like the command mqspark-archive.

See docs/use/spark/archive.md.
"""

from skylarkmq.clients.spark.archive.command import main

main()
