"""The machine that the broker runs on: processor idle states, huge pages, and faults in mapped files.

Each module wraps one facility of the Linux kernel, and works without it too. Messages and requests are not used here.
"""
