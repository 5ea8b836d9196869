"""The accounts of the YAML files as accounts of the daemon itself: the metrics page takes their secret keys as
passwords."""

import hmac
import secrets
from typing import Final

from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.protocol.signature import Signed, SigningKey

PROBE: Final = b"password"
"""Two secret keys are equal if they sign this text alike: an account has its key only as a keyed state."""


class AclAccounts:
    """The accounts of `files`; see `broker.access.accounts.Accounts`."""

    def __init__(self, files: ReloadedFiles) -> None:
        self._files = files
        self._unknown = SigningKey(secrets.token_hex())

    def __repr__(self) -> str:
        return f"<AclAccounts {len(self._files.rules.accounts)}>"

    def is_known(self, account: str) -> bool:
        """Return whether the account exists."""
        return account in self._files.rules.accounts

    def has_signed(self, signed: Signed, body: bytes | memoryview) -> bool:
        """Return whether a request has the signature of its account; a random key checks unknown accounts."""
        return self._key(signed.access_key).has_signed(signed, body)

    def password_matches(self, account: str, password: str) -> bool:
        """Return whether this is the account's secret key. The time does not depend on the position of a difference."""
        own, given = self._key(account).sign(PROBE, b""), SigningKey(password).sign(PROBE, b"")
        return hmac.compare_digest(own, given)

    def may_administer(self, account: str) -> bool:
        """Return whether the account has `admin: true`."""
        known = self._files.rules.accounts.get(account)
        return known is not None and known.is_admin

    def _key(self, account: str) -> SigningKey:
        known = self._files.rules.accounts.get(account)
        return self._unknown if known is None else known.key
