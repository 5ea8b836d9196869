"""The sections of a broker: each makes parts that work together, and connects them, for the daemon and for tests.

`broker/app/parts.py` makes the sections of a broker from its configuration. Tests make single sections over a store,
with a clock and timers that they advance. `register` adds the processors of a section to a dispatcher, `attach` its
callbacks.
"""
