"""The accounts of a cluster that may log in to a console of `mqadmin`: its brokers verify them.

A login is two requests to each master, UNREGISTER_CLIENT (35) without a group, which changes nothing and which every
account may send:

    account, random secret      must be refused: a broker that accepts it verifies no accounts, or trusts the address
                                of this console (white addresses of RocketMQ 4.9), and would accept every password
    account, its password       must be accepted

Masters that cannot be reached are skipped, as long as one responds. The role is the same as in the broker's own
console: super users of RocketMQ 5.3, and `admin: true` accounts of 4.9, may act. It decides what pages offer; every
request of a session is signed with its account, and the brokers check it.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    is_denied,
)
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.consumer import UnregisterClientHeader

MAX_AT_ONCE: Final = 8
"""Logins that are verified at the same time; others wait."""
MAX_LENGTH: Final = 1_000
"""Characters of an account or a password."""
REQUEST_S: Final = 5.0
SUPER: Final = "super"

_UNREACHABLE: Final = (ConnectFailed, ConnectionLost, RequestTimeout)
_PROBE: Final = UnregisterClientHeader(client_id="SKYLARK_CONSOLE_LOGIN")


class ClusterAccounts:
    """The accounts that all masters of a cluster accept."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def __repr__(self) -> str:
        return f"<ClusterAccounts {self._target.name_servers}>"

    async def may_act(self, account: str, password: str) -> bool | None:
        """Return whether an account may do more than read; None: unknown account or wrong password.

        Raises ClientError if no login can be verified.
        """
        if max(len(account), len(password)) > MAX_LENGTH:
            return None
        async with self._slots, self._admin(account, password) as admin, self._impostor(account) as impostor:
            masters = await _masters(admin)
            if masters is None:
                return None
            checks: list[Callable[[], Awaitable[bool | ClientError | None]]] = [
                partial(_checked, admin, impostor, address, account) for address in masters
            ]
            found = [result for result in await gathered(checks) if not isinstance(result, ClientError)]
            if not found:
                raise ConnectFailed(f"no master of {self._target.name_servers} responds. Check that the brokers run.")
            return None if None in found else all(found)

    async def check_cluster(self) -> None:
        """Raise ClientError if a master accepts a wrong password. Masters that do not respond are skipped."""
        async with self._impostor(secrets.token_hex(8)) as impostor:
            with suppress(*_UNREACHABLE):
                for address in await _masters(impostor) or ():
                    with suppress(*_UNREACHABLE):
                        await _check_refusal(impostor, address)

    def _admin(self, account: str, secret: str) -> Admin:
        target = self._target
        return Admin(namesrv=target.name_servers, tls=target.tls, credentials=Credentials(account, secret))

    def _impostor(self, account: str) -> Admin:
        return self._admin(account, secrets.token_hex())


async def _masters(admin: Admin) -> list[str] | None:
    """Return the addresses of the masters; None if the name servers refuse the account."""
    try:
        return list((await admin.masters()).values())
    except BrokerError as error:
        if not is_denied(error):
            raise
        return None


async def _checked(admin: Admin, impostor: Admin, address: str, account: str) -> bool | ClientError | None:
    """Return whether an account may administer a broker, None if it is refused, or why the broker does not respond."""
    try:
        await _check_refusal(impostor, address)
        return await _is_administrator(admin, address, account) if await _is_accepted(admin, address) else None
    except _UNREACHABLE as error:
        return error


async def _check_refusal(impostor: Admin, address: str) -> None:
    """Raise ClientError if a broker accepts a wrong password."""
    if await _is_accepted(impostor, address):
        raise ClientError(
            f"broker {address} accepts requests from this host with any password, so no login can be verified. Switch "
            "its access control on (authenticationEnabled or aclEnable), and remove this host from its white addresses."
        )


async def _is_accepted(admin: Admin, address: str) -> bool:
    """Return whether a broker accepts an account. Raises BrokerError if it refuses for another reason."""
    try:
        await admin.client.request(address, RequestCode.UNREGISTER_CLIENT, _PROBE, timeout_s=REQUEST_S)
    except BrokerError as error:
        if not is_denied(error):
            raise
        return False
    return True


async def _is_administrator(admin: Admin, address: str, account: str) -> bool:
    """Return whether a broker lets an accepted account administer."""
    try:
        user = await admin.access.user(address, account, timeout_s=REQUEST_S)
    except BrokerError as error:
        if is_denied(error):
            return False
    else:
        return user is not None and (user.user_type or "").lower() == SUPER
    try:  # an account of RocketMQ 4.9: only administrators may send this request, which contains no setting
        await admin.client.request(address, RequestCode.UPDATE_BROKER_CONFIG, timeout_s=REQUEST_S)
    except BrokerError:
        return False
    return True
