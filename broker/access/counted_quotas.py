"""Quotas on what exists at a time: connections of a client address and of an account, and parked pulls of an address.

A connection counts for its address from its acceptance on, and for the account of its last request. One above the
quota of its address is closed at once. The requests of one above the quota of its account are refused with
SYSTEM_BUSY (2); so is a pull that would be parked above the quota: clients then wait for a second or more, while an
empty response would make them pull again at once. A lower quota affects new connections and pulls only.

Source: docs/reference/behaviour.md, "Quotas".
"""

from collections.abc import Mapping
from typing import Final

from skylarkmq.broker.access.caller import Caller
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.quota_refusals import Refusals, Scope, setting_of
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.command import RemotingCommand

CONNECTIONS: Final = "connections"
PARKED_PULLS: Final = "parked_pulls"


class Tally:
    """Counts by key; keys without a count are not stored."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Tally keys={len(self._counts)}>"

    def __getitem__(self, key: str) -> int:
        return self._counts.get(key, 0)

    def add(self, key: str, count: int = 1) -> None:
        """Add to the count of a key."""
        left = self._counts.get(key, 0) + count
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self) -> None:
        """Remove all counts."""
        self._counts.clear()


class CountedQuotas:
    """Connections and parked pulls. As a restriction of a gate, it checks the connections of accounts."""

    def __init__(self, config: QuotaConfig, refusals: Refusals) -> None:
        self._config = config
        self._refusals = refusals
        self._open: set[RequestSource] = set()
        self._hosts = Tally()
        self._accounts = Tally()
        self._account_of: dict[RequestSource, str] = {}
        self._parked = Tally()

    def __repr__(self) -> str:
        return f"<CountedQuotas connections={len(self._open)} accounts={len(self._account_of)}>"

    def configure(self, config: QuotaConfig) -> None:
        """Apply these quotas to new connections and pulls."""
        if not config.quota_account_connections:
            self._account_of.clear()
            self._accounts.clear()
        self._config = config

    @property
    def checks_data(self) -> bool:
        """Return whether sends and pulls are checked."""
        return self._config.quota_account_connections > 0

    # ------------------------------------------------------------------------------------------------------ connections

    def may_open(self, source: RequestSource) -> bool:
        """Count a new connection and return True, or return False if its address has too many."""
        most = self._config.quota_client_connections
        if most and self._hosts[source.host] >= most:
            self._refusals.note(Scope.CLIENT, CONNECTIONS, setting_of(Scope.CLIENT, CONNECTIONS), most, source.host)
            return False
        self._open.add(source)
        self._hosts.add(source.host)
        return True

    def closed(self, source: RequestSource) -> None:
        """Stop counting a connection, also one that was refused."""
        if source in self._open:
            self._open.remove(source)
            self._hosts.add(source.host, -1)
        account = self._account_of.pop(source, None)
        if account is not None:
            self._accounts.add(account, -1)

    def check(
        self, source: RequestSource, _command: RemotingCommand, _requirement: Requirement, caller: Caller
    ) -> None:
        """Count a connection for the account of its request. Raises RequestError if the account has too many."""
        account, known = caller.account, self._account_of.get(source)
        if account == known or not account or source not in self._open:
            return
        most = self._config.quota_account_connections
        if self._accounts[account] >= most:
            raise self._refusals.error(
                Scope.ACCOUNT, CONNECTIONS, setting_of(Scope.ACCOUNT, CONNECTIONS), most, account
            )
        if known is not None:
            self._accounts.add(known, -1)
        self._account_of[source] = account
        self._accounts.add(account)

    # ----------------------------------------------------------------------------------------------------- parked pulls

    def begin_parked(self, parked: Mapping[RequestSource, int]) -> None:
        """Begin to count parked pulls with those that exist."""
        self._parked.clear()
        for source, count in parked.items():
            self._parked.add(source.host, count)

    def park(self, source: RequestSource) -> None:
        """Count a pull that is about to be parked. Raises RequestError if its address has too many."""
        most = self._config.quota_client_parked_pulls
        if most and self._parked[source.host] >= most:
            raise self._refusals.error(
                Scope.CLIENT, PARKED_PULLS, setting_of(Scope.CLIENT, PARKED_PULLS), most, source.host
            )
        self._parked.add(source.host)

    def unpark(self, source: RequestSource) -> None:
        """Stop counting a parked pull."""
        self._parked.add(source.host, -1)
