"""Errors of a follower's log, for the owner of the connection."""


class ReplicaError(Exception):
    """The bytes do not continue this log, or the log is not what the other side takes it for. The message is one line
    for an operator."""


class DamagedReplicaError(ReplicaError):
    """The log has bytes that are not a record, from byte `at` on. Nothing from there on was dispatched."""

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(f"the log is damaged at {at}: {reason}")
        self.at = at
