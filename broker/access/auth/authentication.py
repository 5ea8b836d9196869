"""Authentication: which user has sent a request, by its signature or by the client certificate of its connection.

The signature of a request is verified, also if there is no user of that name: a random key takes the place of the
password. So a wrong password and an unknown user take the same steps. Without an AccessKey, a request belongs to the
user that the client certificate of its connection names (`tlsAuthMapping`). The remarks, and their order, are
RocketMQ's.

Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/wire.md, "Signatures".
"""

import hmac
import secrets
from typing import Final, NamedTuple

from skylarkmq.broker.access.auth.users import User, Users, UserStatus
from skylarkmq.broker.access.caller import Proof
from skylarkmq.broker.access.certificates import CertificateAccounts, Certified
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.signature import V4_9_3, Signed, SigningKey, signed_parts

NO_USER: Final = "username cannot be null."
WRONG_SIGNATURE: Final = "check signature failed."

DISABLED: Final = "disabled"
UNKNOWN: Final = "not found"


class Identity(NamedTuple):
    """The user of a request, and the proof of it."""

    user: User
    proof: Proof


Account = tuple[SigningKey, Identity | str]
"""The key of a name, and its identity; without one: DISABLED or UNKNOWN."""


class Authenticator:
    """Verifies certificates, signatures and passwords of users.

    The keyed state of each user is computed at its first request after a change.
    """

    def __init__(self, users: Users, certificates: CertificateAccounts) -> None:
        self._users = users
        self._certificates = certificates
        self._accounts: dict[str, Account] = {}
        self._random_password = secrets.token_hex()
        self._unknown: Account = (SigningKey(self._random_password), UNKNOWN)
        self.refused = 0
        """Requests that were refused since the start."""
        users.on_change(self._accounts.clear)

    def __repr__(self) -> str:
        return f"<Authenticator {self._users!r} {self._certificates!r}>"

    def authenticate(self, source: Certified, command: RemotingCommand) -> Identity:
        """Return the user of a request. Raises RequestError."""
        identity = self._identity(source, command)
        if isinstance(identity, str):
            self.refused += 1
            raise RequestError(ResponseCode.NO_PERMISSION, identity)
        return identity

    def identify(self, source: Certified, command: RemotingCommand) -> Identity | None:
        """Return the user of a request; None if authentication fails."""
        identity = self._identity(source, command)
        return None if isinstance(identity, str) else identity

    def _identity(self, source: Certified, command: RemotingCommand) -> Identity | str:
        """Return the user, or the remark of the refusal."""
        signed = signed_parts(command, is_unique_key_query_signed=command.version > V4_9_3)
        if signed is None or not signed.access_key:
            return self._certified(source)
        return self._signed(signed, command.body)

    def _certified(self, source: Certified) -> Identity | str:
        """Return the user of a client certificate, or the remark of the refusal."""
        account = self._certificates.account_of(source)
        if account is None:
            return NO_USER
        user = self.enabled(account)
        if user is None:
            return refusal_of(account, DISABLED if self._users.find(account) else UNKNOWN)
        return Identity(user, Proof.CERTIFICATE)

    def _signed(self, signed: Signed, body: bytes | memoryview) -> Identity | str:
        """Return the user of the signature, or the remark of the refusal."""
        name = signed.access_key
        key, identity = self._accounts.get(name) or self._account(name)
        is_signature_right = key.has_signed(signed, body)
        if isinstance(identity, str):
            return refusal_of(name, identity)
        return identity if is_signature_right else WRONG_SIGNATURE

    def key_of(self, username: str) -> SigningKey:
        """Return the key with which a user signs; a random one for a name without a user."""
        return (self._accounts.get(username) or self._account(username))[0]

    def _account(self, username: str) -> Account:
        user = self._users.find(username)
        if user is None:
            return self._unknown
        identity = DISABLED if user.status is UserStatus.DISABLE else Identity(user, Proof.SIGNATURE)
        account = self._accounts[username] = (SigningKey(user.password), identity)
        return account

    def enabled(self, username: str) -> User | None:
        """Return a user; None if it does not exist or is disabled."""
        user = self._users.find(username)
        return None if user is None or user.status is UserStatus.DISABLE else user

    # ---------------------------------------------------------------------- accounts of other listeners (accounts.py)

    def is_known(self, account: str) -> bool:
        """Return whether this is the name of an enabled user."""
        return self.enabled(account) is not None

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of an enabled user."""
        return isinstance(self._signed(signed, body), Identity)

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the password of an enabled user. The time does not depend on the position of a
        difference."""
        user = self.enabled(account)
        known = self._random_password if user is None else user.password
        return hmac.compare_digest(known.encode(), password.encode())

    def may_administer(self, account: str) -> bool:
        """Return whether this is an enabled super user."""
        user = self.enabled(account)
        return user is not None and user.is_super


def refusal_of(username: str, state: str) -> str:
    """Return the remark about a disabled or unknown user."""
    return f"User:{username} is {state}."
