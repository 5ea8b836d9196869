"""Benchmarks: scripts with `--help`, run by hand. CI checks that they run, but not their figures."""
