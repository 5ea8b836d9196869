"""The topics and groups that accounts have created, and the quotas on their numbers.

A name counts from its creation, by an administrative request or by a send, pull or heartbeat that creates it, until its
deletion. Names that were created while there was no quota, or without an account, do not count. The `%RETRY%` and
`%DLQ%` topics of groups do not count either. A request that would create one name too many is refused with SYSTEM_BUSY
(2) and creates nothing.

The table is stored in `config/createdNames.json`: {"topics":{"<name>":"<account>"},"groups":{…}}. Source:
docs/reference/behaviour.md, "Quotas".
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.access.caller import Caller
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.counted_quotas import Tally
from skylarkmq.broker.access.quota_refusals import Refusals, Scope, setting_of
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX
from skylarkmq.protocol.command import RemotingCommand

TOPICS: Final = "topics"
GROUPS: Final = "groups"

Table = dict[str, dict[str, str]]
_decode: Final = msgspec.json.Decoder(Table).decode
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Creations:
    """The names of one kind. The table of topics, or of groups, calls `check` and `note`."""

    def __init__(self, kind: str, created: "CreatedNames") -> None:
        self.kind = kind
        self.accounts: dict[str, str] = {}
        self.counts = Tally()
        self._created = created

    def __repr__(self) -> str:
        return f"<Creations {self.kind}={len(self.accounts)}>"

    def check(self, names: Sequence[str]) -> None:
        """Raise RequestError if the account of the current request may not create all of these names."""
        self._created.check_growth(self, sum(map(counts, names)))

    def note(self, name: str) -> None:
        """Count a name that was created by the current request."""
        account = self._created.account
        if account and counts(name):
            self.accounts[name] = account
            self.counts.add(account)
            self._created.changed()

    def forget(self, name: str) -> None:
        """Stop counting a deleted name."""
        account = self.accounts.pop(name, None)
        if account is not None:
            self.counts.add(account, -1)
            self._created.changed()


class CreatedNames:
    """Created topics and groups. As a restriction of a gate, it follows which account sends the current request."""

    checks_data = True
    """Sends and pulls can create topics and groups."""

    def __init__(self, config: QuotaConfig, refusals: Refusals) -> None:
        self._config = config
        self._refusals = refusals
        self.account = ""
        self.topics = Creations(TOPICS, self)
        self.groups = Creations(GROUPS, self)
        self._listeners: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<CreatedNames {self.topics!r} {self.groups!r}>"

    def configure(self, config: QuotaConfig) -> None:
        """Apply these quotas from now on."""
        self._config = config
        self.account = ""

    @property
    def is_active(self) -> bool:
        """Return whether there is a quota."""
        return bool(self._config.quota_account_topics or self._config.quota_account_groups)

    def check(
        self, _source: RequestSource, _command: RemotingCommand, _requirement: Requirement, caller: Caller
    ) -> None:
        """Take note of the account that sends the current request. Refuses nothing itself."""
        self.account = caller.account

    def check_growth(self, creations: Creations, count: int) -> None:
        """Raise RequestError if the account of the current request may not create `count` more names."""
        most = self._config.quota_account_topics if creations.kind == TOPICS else self._config.quota_account_groups
        if most and count and self.account and creations.counts[self.account] + count > most:
            kind = creations.kind
            raise self._refusals.error(Scope.ACCOUNT, kind, setting_of(Scope.ACCOUNT, kind), most, self.account)

    # -------------------------------------------------------------------------------------------------------- the table

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def changed(self) -> None:
        """Have the table saved."""
        for listener in self._listeners:
            listener()

    def load(self, data: bytes | None) -> None:
        """Load createdNames.json (None: a new store). Raises ValueError."""
        table = {} if data is None else decode(data)
        for creations in (self.topics, self.groups):
            creations.accounts = table.get(creations.kind, {})
            creations.counts.clear()
            for account in creations.accounts.values():
                creations.counts.add(account)

    def keep_existing(self, has_topic: Callable[[str], bool], has_group: Callable[[str], bool]) -> None:
        """Forget names that no longer exist: a crash came between two files."""
        for creations, exists in ((self.topics, has_topic), (self.groups, has_group)):
            for name in [name for name in creations.accounts if not exists(name)]:
                creations.forget(name)

    def encode(self) -> bytes:
        """Return the table as createdNames.json."""
        return _encode({TOPICS: self.topics.accounts, GROUPS: self.groups.accounts})


def decode(data: bytes) -> Table:
    """Return the content of createdNames.json. Raises ValueError if it is invalid."""
    return _decode(data)


def counts(name: str) -> bool:
    """Return whether a name counts: the topics of a group belong to the group."""
    return not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
