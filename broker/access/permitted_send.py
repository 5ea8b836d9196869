"""The last permitted send: the next one with the same host, code, topic and account needs only its signature verified.

Producers send to few topics, so most sends follow one like them. Both generations of access control keep the last one,
and forget it when a rule, an account or a password changes.
"""

from collections.abc import Sequence

import msgspec

from skylarkmq.broker.access.caller import Caller
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.signature import SigningKey


class PermittedSend(msgspec.Struct, frozen=True):
    """A send that an account was permitted by its signature."""

    host: str
    code: int
    topic: str
    access_key: str
    key: SigningKey
    caller: Caller

    def has_signed(self, command: RemotingCommand) -> bool | None:
        """Return whether a send that is like this one has the signature of the account; None for any other request."""
        return self.key.has_signed_send(command, self.code, self.topic, self.access_key)

    def count_signed(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int, end: int) -> int:
        """Return how many requests from `at` on, before `end`, are sends like this one with the account's signature."""
        if source.host != self.host:
            return 0
        return self.key.count_signed_sends(commands, at, end, self.code, self.topic, self.access_key)


def permitted_send(
    source: RequestSource, command: RemotingCommand, access_key: str, key: SigningKey, caller: Caller
) -> PermittedSend | None:
    """Return a permitted request as the last send. None: it is no send on the fast path, or it names a retry topic,
    whose group counts."""
    sent = command.send_header
    if sent is None or sent.topic.startswith(RETRY_PREFIX):
        return None
    return PermittedSend(source.host, command.code, sent.topic, access_key, key, caller)
