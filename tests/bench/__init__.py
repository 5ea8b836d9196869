"""Benchmarks: scripts with `--help`, run by hand; CI checks that they run, never how fast."""
