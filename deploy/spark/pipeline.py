"""What spark-submit runs: the pipeline, as the command mqspark-pipeline. See docs/spark.md."""

from skylarkmq.clients.spark.pipeline.command import main

main()
