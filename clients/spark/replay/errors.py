"""The errors of a replay; their texts contain the remedy."""


class ReplayFailed(Exception):
    """A replay that cannot go on. It can be resumed."""


class JournalError(Exception):
    """The directory cannot be used for this replay."""


class ArchiveUnreadable(Exception):
    """An archive that cannot be read."""


class Stopped(Exception):
    """A run that was stopped before its end. It can be resumed."""
