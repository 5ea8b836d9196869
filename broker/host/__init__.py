"""The machine below the broker: processor idle states, huge pages, and faults in mapped files.

Each module wraps one facility of the Linux kernel and works without it, too. Nothing here knows messages or requests.
"""
