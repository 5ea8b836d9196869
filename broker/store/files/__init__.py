"""Files of the store: segments mapped into memory, their allocation, files of state, and reads that do not wait."""
