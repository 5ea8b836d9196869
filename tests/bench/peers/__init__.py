"""Brokers side by side: ours and the official ones, under the same load, on one machine, alternately.

    started       one broker of each kind, with its CPU time
    disk          the time of a bare fdatasync
    loads         the measurements of a broker: each load returns figures by name
    end_to_end    our SDK's producer and consumer in separate processes
    rows          the rows of the table, and their budgets

The official brokers come from their registry (tests/interop/toolchain.py), never from a copy.
"""
