"""Script for spark-submit that runs the pipeline, like the command mqspark-pipeline. See docs/use/spark/sources.md."""

from skylarkmq.clients.spark.pipeline.command import main

main()
