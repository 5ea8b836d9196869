"""Messages as tables: Delta, Iceberg and Parquet. `evolution` compares schemas."""
