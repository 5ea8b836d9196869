"""The check of a request: authentication, then authorization, unless a whitelist skips one of them for its code.

A request that skips authentication is authorized for the user that its signature or certificate proves. RocketMQ
believes the name in such a request without a signature; this broker does not.

Source: docs/reference/behaviour.md, "Users and policies".
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.access.auth.authentication import Authenticator
from skylarkmq.broker.access.auth.authorization import Authorizer
from skylarkmq.broker.access.auth.policies import Acls
from skylarkmq.broker.access.auth.request_resources import uses_of
from skylarkmq.broker.access.auth.users import User, Users
from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.config import AccessConfig
from skylarkmq.broker.access.decision_cache import DecisionCache
from skylarkmq.broker.access.decoded_names import decoded_names
from skylarkmq.broker.access.message_rights import Rights, all_rights
from skylarkmq.broker.access.permitted_send import PermittedSend, permitted_send
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.access.requests.uses import Use, topic_resource
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

NOT_AUTHORIZED: Final = "Authorization failed. Please verify your access rights and try again."


Key = tuple[str, bool, int, str, str | None, str]
"""User, whether a certificate proves it, code, topic, group, host."""


class AuthStatistics(msgspec.Struct, frozen=True):
    """`refused`: requests by the step that refused them, since the start. `subjects`: users with policies."""

    refused: dict[str, int]
    users: int
    subjects: int


class AuthControl:
    """Access control of RocketMQ 5.3. `cluster`: the cluster's name, a resource.

    The callers of permitted sends and pulls are cached until a user or a policy changes; the result of a signature is
    never cached. A send that is like the last permitted one, in all but its message, needs only its signature verified.
    """

    checks_data = True

    def __init__(
        self, config: AccessConfig, cluster: str, users: Users, acls: Acls, certificates: CertificateAccounts
    ) -> None:
        self._cluster = cluster
        self._is_authorization_enabled = config.authorization_enabled
        self._unauthenticated = codes_of(config.authentication_whitelist)
        self._unauthorized = codes_of(config.authorization_whitelist)
        self.authenticator = Authenticator(users, certificates)
        self._authorizer = Authorizer(acls)
        self._permitted: DecisionCache[Key, Caller] = DecisionCache()
        self._last: PermittedSend | None = None
        users.on_change(self._forget)
        acls.on_change(self._forget)
        self._users = users
        self._acls = acls
        self._refused = 0

    def __repr__(self) -> str:
        return f"<AuthControl {self.authenticator!r} {self._authorizer!r}>"

    def statistics(self) -> AuthStatistics:
        """Return the current figures."""
        refused = {"authentication": self.authenticator.refused, "authorization": self._refused}
        return AuthStatistics(refused, self._users.statistics().users, self._acls.statistics().subjects)

    def check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Return the caller of a permitted request. Raises RequestError with NO_PERMISSION (16) otherwise."""
        last = self._last
        if last is not None and last.host == source.host and last.has_signed(command):
            return last.caller
        caller = self._check(source, command, requirement)
        if caller.proof is Proof.SIGNATURE:
            key = self.authenticator.key_of(caller.account)
            self._last = permitted_send(source, command, caller.account, key, caller) or last
        return caller

    def admit_alike(
        self, source: RequestSource, commands: Sequence[RemotingCommand], at: int, end: int
    ) -> tuple[int, Caller]:
        """Return how many requests from `at` on, before `end`, are like the last permitted send and have the signature
        of its user, and their caller."""
        last = self._last
        return (0, ANONYMOUS) if last is None else (last.count_signed(source, commands, at, end), last.caller)

    def _check(self, source: RequestSource, command: RemotingCommand, requirement: Requirement) -> Caller:
        """Check a request that is not like the last permitted send."""
        code = command.code
        if code in self._unauthenticated:
            identity = self.authenticator.identify(source, command)
        else:
            identity = self.authenticator.authenticate(source, command)
        user = None if identity is None else identity.user
        names = decoded_names(command)
        key = None
        if identity is not None and names is not None:
            is_certified = identity.proof is Proof.CERTIFICATE
            key = (identity.user.username, is_certified, code, *names, source.host)
            caller = self._permitted.get(key)
            if caller is not None:
                return caller
        if self._is_authorization_enabled and code not in self._unauthorized:
            self._authorize(user, source.host, command, requirement)
        if identity is None:
            return ANONYMOUS
        is_admin = identity.user.is_super or not self._is_authorization_enabled
        caller = Caller(identity.user.username, identity.proof, is_admin)
        if key is not None:
            self._permitted.remember(key, caller, key[3:5])
        return caller

    def _forget(self) -> None:
        """Forget the decisions of earlier users and policies."""
        self._permitted.clear()
        self._last = None

    def rights_of(self, source: RequestSource, command: RemotingCommand) -> Rights:
        """Return the rights of the user of an admitted request; a request without a user has none."""
        code, host = command.code, source.host
        if not self._is_authorization_enabled or code in self._unauthorized:
            return all_rights
        identity = self.authenticator.identify(source, command)
        if identity is None:
            return no_rights
        return partial(self._permits, identity.user.username, code, host)

    def _permits(self, username: str, code: int, host: str, topic: str, action: Action) -> bool:
        """Return whether a user may do `action` with a message of `topic`."""
        user = self.authenticator.enabled(username)
        if user is None:
            return False
        use = Use(topic_resource(topic), (action,))
        return user.is_super or self._authorizer.refusal(username, code, use, host) is None

    def _authorize(self, user: User | None, host: str, command: RemotingCommand, requirement: Requirement) -> None:
        if user is not None and user.is_super:
            return
        for use in uses_of(command, requirement, self._cluster):
            remark = NOT_AUTHORIZED
            if user is not None:
                refusal = self._authorizer.refusal(user.username, command.code, use, host)
                if refusal is None:
                    continue
                remark = refusal
            self._refused += 1
            raise RequestError(ResponseCode.NO_PERMISSION, remark)


def no_rights(_topic: str, _action: Action) -> bool:
    """Return False."""
    return False


def codes_of(whitelist: str) -> frozenset[int]:
    """Return the request codes of a whitelist. Other entries are the names of gRPC requests, which have no code."""
    entries = (entry.strip() for entry in whitelist.split(","))
    return frozenset(int(entry) for entry in entries if entry.isdecimal())
