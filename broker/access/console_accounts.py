"""The accounts that may log in to the console: the daemon's accounts, with their secrets as passwords.

Super users, `admin: true` accounts of RocketMQ 4.9, and the accounts of `accountsFile` may act; all others may read.
"""

from collections.abc import Sequence

from skylarkmq.broker.access.accounts import Passwords
from skylarkmq.broker.base.address_ranges import is_loopback
from skylarkmq.broker.base.errors import StartError


class ConsoleAccounts:
    """The accounts of several sources."""

    def __init__(self, sources: Sequence[Passwords]) -> None:
        self._sources = tuple(sources)

    def __repr__(self) -> str:
        return f"<ConsoleAccounts {self._sources!r}>"

    async def may_act(self, account: str, password: str) -> bool | None:
        """Return whether an account may do more than read; None: unknown account or wrong password."""
        proven = [source for source in self._sources if source.password_matches(account, password)]
        return any(source.may_administer(account) for source in proven) if proven else None


def console_accounts(host: str, port: int, sources: Sequence[Passwords]) -> ConsoleAccounts | None:
    """Return the accounts of a console; None: it needs no login, because there are none. Raises StartError for a
    console that other machines could use without a login."""
    if sources:
        return ConsoleAccounts(sources)
    if port and not is_loopback(host) and host != "localhost":
        raise StartError(f"consoleHost={host}: expected a loopback address, or accountsFile or access control")
    return None
