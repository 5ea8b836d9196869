"""Errors that belong to the daemon as a whole, not to one request or one connection."""


class StartError(Exception):
    """The daemon cannot start, and the operator can do something about it.

    The message is the one line that stands on stderr: what was tried, on which address, file or key, and what is in
    the way ("port 10911 on 127.0.0.1 is in use", "store /data/store is locked by process 4711"). No traceback follows.
    """


class StartStopped(Exception):
    """A stop was asked for before the daemon was ready; what had started is stopped again. It is no failure."""
