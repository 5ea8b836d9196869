"""Options of a console: its cluster, its accounts, and its restrictions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.sdk.base.signing import Credentials


class Accounts(Protocol):
    """The accounts that may log in."""

    async def may_act(self, account: str, password: str) -> bool | None:
        """Return whether an account may do more than read; None: unknown account or wrong password.

        Raises ClientError if the cluster cannot verify it now.
        """


class OwnSetting(Protocol):
    """A setting of the broker that serves the console, and where it comes from."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def origin(self) -> str: ...


class ConsoleOptions(NamedTuple):
    """Options of a console: its cluster, its accounts, and its restrictions.

    `credentials`: of a console without accounts. `accounts` None: no login. `hosts`: the names of its address that
    browsers may use; none: all. `is_secure`: it is served over TLS. `own_settings`: the settings of the broker named
    `own_broker`, with their origins.
    """

    target: Target
    credentials: Credentials | None = None
    accounts: Accounts | None = None
    is_read_only: bool = False
    is_secure: bool = False
    hosts: frozenset[str] = frozenset()
    own_broker: str = ""
    own_settings: Callable[[], Sequence[OwnSetting]] | None = None
