"""Conversion of CommitLog records to Arrow record batches, for both sources: one module for each kind of column."""
