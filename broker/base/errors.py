"""Errors of the daemon as a whole, not of one request or one connection."""


class StartError(Exception):
    """The daemon cannot start for a reason that the operator can change.

    The message is a single line for stderr. It names the operation, the address, file or key, and the obstacle ("port
    10911 on 127.0.0.1 is in use", "store /data/store is locked by process 4711"). No traceback is printed.
    """


class DaemonEnded(Exception):
    """A running daemon had to end: the message is a line for stderr, with the cause and the next step.

    `may_restart`: a new start of the same daemon is the next step, and a supervisor may do that by itself.
    """

    def __init__(self, reason: str, *, may_restart: bool) -> None:
        super().__init__(reason)
        self.may_restart = may_restart


class StartStopped(Exception):
    """A stop was requested before the daemon was ready. The parts that had started are stopped. This is not a
    failure."""
