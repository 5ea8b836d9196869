"""Brokers side by side: ours and the official ones, under the same load, on one machine, in turns.

    started       one broker of each kind, with what it costs
    disk          what a bare fdatasync takes
    loads         what is measured of a broker: each load gives figures by name
    end_to_end    our SDK's producer and consumer in processes of their own
    rows          the rows of the table, and what each must reach

The official brokers come from their registry (tests/interop/toolchain.py), never from a copy.
"""
