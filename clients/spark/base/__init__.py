"""What source, sink and jobs share: options, the schema of rows, the features of Spark versions, and retries."""
