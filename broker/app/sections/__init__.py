"""The sections of a broker: each makes parts that work together, and connects them, for the daemon and for tests."""
