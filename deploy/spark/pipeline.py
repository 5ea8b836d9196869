"""Script for spark-submit that runs the pipeline, like the command mqspark-pipeline. See docs/spark.md."""

from skylarkmq.clients.spark.pipeline.command import main

main()
