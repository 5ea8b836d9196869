"""Bodies to columns: JSON, Avro and Protobuf. `decoding` is the entry point."""
