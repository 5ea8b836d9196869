"""Requests about users and policies: AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010).

A change takes effect at once, and is on disk before the response is written. Only super users may create, change or
delete super users, and only they get passwords, which the tool copyUser needs. Codes and remarks are RocketMQ's, those
of a broker without users included, which is a broker without `authenticationEnabled`.

Source: docs/reference/behaviour.md, "Users and policies".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from skylarkmq.broker.access.auth.authentication import Authenticator
from skylarkmq.broker.access.auth.policies import ACLS_FILE, Acls, acl_of, policy_type_of, subject_of
from skylarkmq.broker.access.auth.users import USERS_FILE, UserChange, Users, UserType, refusal
from skylarkmq.broker.access.requests.resources import Resource
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.auth import AclInfo, UserInfo
from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.auth import AclHeader, DeleteAclHeader, ListAclsHeader, ListUsersHeader, UserHeader

BLANK_USERNAME: Final = "The username is blank"
ONLY_SUPER_CREATES: Final = "The super user can only be create by super user"
ONLY_SUPER_UPDATES: Final = "The super user can only be update by super user"
NO_POLICIES: Final = (
    "org.apache.rocketmq.auth.authorization.exception.AuthorizationException: The body of acl is null, "
    "org.apache.rocketmq.broker.processor.AdminBrokerProcessor.{method}(AdminBrokerProcessor.java:{line})"
)
FAILED: Final = "An system error occurred, please try again later."

Saved = Callable[[str], Awaitable[None]]
"""Waits until the named file contains every change so far."""

log = logging.getLogger(__name__)


class AuthRequests:
    """Reads and changes users and policies. `authenticator` identifies the callers; `saved` waits for a file."""

    def __init__(self, users: Users, acls: Acls, authenticator: Authenticator, saved: Saved) -> None:
        self._users = users
        self._acls = acls
        self._authenticator = authenticator
        self._saved = saved

    def __repr__(self) -> str:
        return f"<AuthRequests {self._users!r} {self._acls!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.create_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # ------------------------------------------------------------------------------------------------------------ users

    def create_user(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_CREATE_USER (3001)."""
        change = self._change(command)
        if change.type is UserType.SUPER and not self._is_by_super_user(source, command):
            raise RequestError(ResponseCode.SYSTEM_ERROR, ONLY_SUPER_CREATES)
        user = self._users.create(change)
        log.info("user created user=%s type=%s peer=%s", user.username, user.type.value, source.peer)
        return self._respond_when_saved(USERS_FILE)

    def update_user(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_UPDATE_USER (3002)."""
        change = self._change(command)
        if change.type is UserType.SUPER and not self._is_by_super_user(source, command):
            raise RequestError(ResponseCode.SYSTEM_ERROR, ONLY_SUPER_UPDATES)
        self._check_super_user(change.username, source, command)
        user = self._users.update(change)
        log.info(
            "user changed user=%s type=%s status=%s peer=%s",
            user.username,
            user.type.value,
            user.status.value,
            source.peer,
        )
        return self._respond_when_saved(USERS_FILE)

    def delete_user(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_DELETE_USER (3003): remove a user and its policies."""
        username = command.header(UserHeader).username
        if not username.strip():
            raise refusal("username can not be blank")
        self._check_super_user(username, source, command)
        if self._users.delete(username):
            log.info("user deleted user=%s peer=%s", username, source.peer)
        return self._respond_when_saved(ACLS_FILE, USERS_FILE)

    def get_user(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve AUTH_GET_USER (3004). Without such a user the response has no body."""
        username = command.header(UserHeader).username
        if not username.strip():
            raise RequestError(ResponseCode.INVALID_PARAMETER, BLANK_USERNAME)
        user = self._users.find(username)
        with_password = self._is_by_super_user(source, command)
        return _found(None if user is None else user.info(with_password=with_password))

    def list_users(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve AUTH_LIST_USER (3005)."""
        with_password = self._is_by_super_user(source, command)
        found = self._users.matching(command.header(ListUsersHeader).filter)
        return _listed([user.info(with_password=with_password) for user in found])

    def _change(self, command: RemotingCommand) -> UserChange:
        username = command.header(UserHeader).username
        if not username:
            raise RequestError(ResponseCode.INVALID_PARAMETER, BLANK_USERNAME)
        return UserChange.of(username, UserInfo.decode_request(command.body))

    def _check_super_user(self, username: str, source: RequestSource, command: RemotingCommand) -> None:
        """Check that a super user is changed by a super user only. Raises RequestError."""
        user = self._users.find(username)
        if user is not None and user.is_super and not self._is_by_super_user(source, command):
            raise refusal(ONLY_SUPER_UPDATES)

    def _is_by_super_user(self, source: RequestSource, command: RemotingCommand) -> bool:
        """Return whether a super user has sent the request."""
        identity = self._authenticator.identify(source, command)
        return identity is not None and identity.user.is_super

    # --------------------------------------------------------------------------------------------------------- policies

    def create_acl(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_CREATE_ACL (3006)."""
        return self._put(source, command, NO_POLICIES.format(method="createAcl", line=3158))

    def update_acl(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_UPDATE_ACL (3007), which has the same effect."""
        return self._put(source, command, NO_POLICIES.format(method="updateAcl", line=3185))

    def _put(self, source: RequestSource, command: RemotingCommand, no_policies: str) -> Awaitable[RemotingCommand]:
        info = AclInfo.decode_request(command.body or b"{}")
        if not info.policies:
            raise RequestError(ResponseCode.SYSTEM_ERROR, no_policies)
        subject = subject_of(info.subject) or _subject(command.header(AclHeader).subject)
        self._acls.put(subject, acl_of(info.policies))
        log.info("policies changed subject=%s peer=%s", subject, source.peer)
        return self._respond_when_saved(ACLS_FILE)

    def delete_acl(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve AUTH_DELETE_ACL (3008)."""
        header = command.header(DeleteAclHeader)
        subject = subject_of(header.subject)
        if subject is None:
            raise refusal("The subject is null.")
        self._acls.delete(subject, policy_type_of(header.policy_type), Resource.parse(header.resource))
        log.info("policies deleted subject=%s resource=%s peer=%s", subject, header.resource, source.peer)
        return self._respond_when_saved(ACLS_FILE)

    def get_acl(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve AUTH_GET_ACL (3009). Without policies the response has no body."""
        return _found(self._acls.find(_subject(command.header(AclHeader).subject)))

    def list_acls(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve AUTH_LIST_ACL (3010)."""
        header = command.header(ListAclsHeader)
        return _listed(self._acls.matching(header.subject_filter, header.resource_filter))

    async def _respond_when_saved(self, *files: str) -> RemotingCommand:
        for file in files:
            await self._saved(file)
        return _succeeded()


class NoUsers:
    """Refuses the same requests at a broker without authentication, as RocketMQ without a provider of users."""

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        first, last = RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL
        return {code: self.refuse for code in RequestCode if first <= code <= last}

    def refuse(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010) with SYSTEM_ERROR (1)."""
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, FAILED)


def _subject(text: str) -> str:
    """Return the subject in a text. Raises RequestError as RocketMQ's broker, which fails there."""
    subject = subject_of(text)
    if subject is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, FAILED)
    return subject


def _succeeded(body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.response(remark=NO_RESPONSE_REMARK, body=body)


def _found(body: Body | None) -> RemotingCommand:
    return _succeeded(b"" if body is None else body.encode())


def _listed(bodies: "list[UserInfo] | list[AclInfo]") -> RemotingCommand:
    return _succeeded(javajson.dumps(bodies) if bodies else b"")
