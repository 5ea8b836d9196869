"""Requests about accounts and rights: users and policies of RocketMQ 5, and the accounts of 4.9 (plain_acl.yml).

    await admin.access.create_user("10.0.0.1:10911", UserInfo("alice", password=secret))
    await admin.access.create_acl("10.0.0.1:10911", acl)

Each broker has its own accounts, so each call names the address of one. Brokers of 4.9 do not support requests of 5,
and 5 not those of 4.9: BrokerError with REQUEST_CODE_NOT_SUPPORTED (3). Passwords are part of no error and no `repr`.
Source: docs/reference/behaviour.md, "Users and policies", "Access control of RocketMQ 4.9".
"""

from typing import Any, Final

import msgspec

from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_type
from skylarkmq.clients.sdk.base.errors import invalid_response, reading_response
from skylarkmq.protocol.bodies.auth import AclInfo, UserInfo
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers import acl as plain
from skylarkmq.protocol.headers.auth import AclHeader, DeleteAclHeader, ListAclsHeader, ListUsersHeader, UserHeader
from skylarkmq.protocol.headers.fields import Header

_users: Final = msgspec.json.Decoder(list[UserInfo], strict=False)
_acls: Final = msgspec.json.Decoder(list[AclInfo], strict=False)
_versions: Final = msgspec.json.Decoder(dict[str, DataVersion], strict=False)


class PlainAccount(msgspec.Struct, kw_only=True, frozen=True):
    """An account of RocketMQ 4.9. Members that are None stay as they are. The secret is never part of a `repr`.

    `topic_perms` and `group_perms`: `Orders=PUB|SUB`, separated by commas.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"<PlainAccount {self.access_key}>"


class PlainAclVersions(msgspec.Struct, frozen=True):
    """The versions of a 4.9 broker's account files, by path."""

    cluster_name: str
    broker_name: str
    broker_address: str
    files: dict[str, DataVersion]


class Access:
    """The section `Admin.access`. Addresses are `host:port` of brokers."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<Access {self._requests.client}>"

    # ---------------------------------------------------------------------------------------------------------- users

    async def create_user(self, address: str, user: UserInfo, *, timeout_s: float | None = None) -> None:
        """Create a user. `user_type`: Super or Normal (the default). BrokerError if the name exists."""
        await self._put_user(RequestCode.AUTH_CREATE_USER, address, user, timeout_s)

    async def update_user(self, address: str, user: UserInfo, *, timeout_s: float | None = None) -> None:
        """Change the members of a user that are not None. `user_status`: enable or disable."""
        await self._put_user(RequestCode.AUTH_UPDATE_USER, address, user, timeout_s)

    async def delete_user(self, address: str, username: str, *, timeout_s: float | None = None) -> None:
        """Delete a user and its policies. An unknown user is no error."""
        await self._send(RequestCode.AUTH_DELETE_USER, address, UserHeader(username=username), b"", timeout_s)

    async def user(self, address: str, username: str, *, timeout_s: float | None = None) -> UserInfo | None:
        """Return a user, or None. Only super users get the password."""
        code = RequestCode.AUTH_GET_USER
        body = await self._send(code, address, UserHeader(username=username), b"", timeout_s)
        with reading_response(code, f"broker {address}"):
            return UserInfo.decode(body) if _is_value(body) else None

    async def users(self, address: str, name: str = "", *, timeout_s: float | None = None) -> list[UserInfo]:
        """Return the users with `name` in their names; only super users get the passwords."""
        code = RequestCode.AUTH_LIST_USER
        body = await self._send(code, address, ListUsersHeader(filter=name), b"", timeout_s)
        found: list[UserInfo] = _decoded(_users, body, code, address)
        return found

    async def _put_user(self, code: RequestCode, address: str, user: UserInfo, timeout_s: float | None) -> None:
        check_type("user", user, UserInfo)
        await self._send(code, address, UserHeader(username=user.username or ""), user.encode(), timeout_s)

    # ------------------------------------------------------------------------------------------------------- policies

    async def create_acl(self, address: str, acl: AclInfo, *, timeout_s: float | None = None) -> None:
        """Add policies to a subject, such as `User:alice`. Entries for the same resources are replaced."""
        await self._put_acl(RequestCode.AUTH_CREATE_ACL, address, acl, timeout_s)

    async def update_acl(self, address: str, acl: AclInfo, *, timeout_s: float | None = None) -> None:
        """Add or replace policies of a subject."""
        await self._put_acl(RequestCode.AUTH_UPDATE_ACL, address, acl, timeout_s)

    async def delete_acl(
        self,
        address: str,
        subject: str,
        resource: str = "",
        *,
        policy_type: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """Delete the entries of a subject for a resource; without a resource, all of the subject.

        `policy_type`: of the entries; Custom by default.
        """
        header = DeleteAclHeader(subject=subject, policy_type=policy_type, resource=resource)
        await self._send(RequestCode.AUTH_DELETE_ACL, address, header, b"", timeout_s)

    async def acl(self, address: str, subject: str, *, timeout_s: float | None = None) -> AclInfo | None:
        """Return the policies of a subject, or None."""
        code = RequestCode.AUTH_GET_ACL
        body = await self._send(code, address, AclHeader(subject=subject), b"", timeout_s)
        with reading_response(code, f"broker {address}"):
            return AclInfo.decode(body) if _is_value(body) else None

    async def acls(
        self, address: str, subject: str = "", resource: str = "", *, timeout_s: float | None = None
    ) -> list[AclInfo]:
        """Return the policies of subjects, and for resources, whose names contain these texts."""
        code = RequestCode.AUTH_LIST_ACL
        header = ListAclsHeader(subject_filter=subject, resource_filter=resource)
        found: list[AclInfo] = _decoded(_acls, await self._send(code, address, header, b"", timeout_s), code, address)
        return found

    async def _put_acl(self, code: RequestCode, address: str, acl: AclInfo, timeout_s: float | None) -> None:
        check_type("acl", acl, AclInfo)
        await self._send(code, address, AclHeader(subject=acl.subject or ""), acl.encode(), timeout_s)

    # ---------------------------------------------------------------------------------------- accounts of RocketMQ 4.9

    async def put_plain_account(self, address: str, account: PlainAccount, *, timeout_s: float | None = None) -> None:
        """Create an account of RocketMQ 4.9, or change it."""
        check_type("account", account, PlainAccount)
        header = plain.UpdateAclHeader(**msgspec.structs.asdict(account))
        await self._send(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, address, header, b"", timeout_s)

    async def delete_plain_account(self, address: str, access_key: str, *, timeout_s: float | None = None) -> None:
        """Delete an account of RocketMQ 4.9. BrokerError if it does not exist."""
        header = plain.DeleteAclHeader(access_key=access_key)
        await self._send(RequestCode.DELETE_ACL_CONFIG, address, header, b"", timeout_s)

    async def set_white_addresses(
        self, address: str, addresses: str, file: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Replace the addresses that need no signature, separated by commas. `file`: path of an account file there."""
        header = plain.UpdateWhiteAddressesHeader(global_white_addrs=addresses, acl_file_full_path=file)
        await self._send(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, address, header, b"", timeout_s)

    async def plain_acl_versions(self, address: str, *, timeout_s: float | None = None) -> PlainAclVersions:
        """Return the versions of the account files of a RocketMQ 4.9 broker."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        async with self._requests.within(timeout_s, "plain_acl_versions"):
            header = await self._requests.read_header(plain.AclVersionHeader, address, code)
        files: dict[str, DataVersion] = _decoded(_versions, header.all_acl_file_version.encode(), code, address)
        return PlainAclVersions(header.cluster_name, header.broker_name, header.broker_addr, files)

    async def _send(
        self, code: RequestCode, address: str, header: Header, body: bytes, timeout_s: float | None
    ) -> bytes:
        async with self._requests.within(timeout_s, code.name):
            return bytes((await self._requests.send(address, code, header, body)).body)


def _is_value(body: bytes) -> bool:
    """Return whether a response has a value: without one, brokers respond with no body or with `null`."""
    return body.strip() not in (b"", b"null")


def _decoded(decoder: "msgspec.json.Decoder[Any]", body: bytes, code: RequestCode, address: str) -> Any:
    try:
        return decoder.decode(body if _is_value(body) else b"[]")
    except ValueError as error:
        raise invalid_response(code, f"broker {address}", str(error)) from error
