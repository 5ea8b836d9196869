"""Rights to stored messages, for tests: a caller may do some actions with the messages of some topics."""

from skylarkmq.broker.access.message_rights import Rights
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.command import RemotingCommand


class SomeRights:
    """Permits these pairs of a topic and an action to every caller, and nothing else."""

    def __init__(self, *permitted: tuple[str, Action]) -> None:
        self._permitted = permitted

    def rights_of(self, _source: RequestSource, _command: RemotingCommand) -> Rights:
        """Return the same rights for every caller."""
        return lambda topic, action: (topic, action) in self._permitted
