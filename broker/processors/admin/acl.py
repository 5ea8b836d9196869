"""Accounts of RocketMQ 4.9: UPDATE_AND_CREATE_ACL_CONFIG (50), DELETE_ACL_CONFIG (51), GET_BROKER_CLUSTER_ACL_INFO
(52), UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53).

A change is in the YAML files, and in effect, before the response is written. As in RocketMQ, the remark of a refused
account contains the keys of the request.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from skylarkmq.broker.access.plain_acl.accounts import PERMISSIONS, is_long_enough, rule_parts
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.plain_acl.files import AclFiles
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol import javajson
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.acl import (
    AclVersionHeader,
    DeleteAclHeader,
    UpdateAclHeader,
    UpdateWhiteAddressesHeader,
)
from skylarkmq.protocol.headers.fields import is_true

SEPARATOR: Final = ","

log = logging.getLogger(__name__)


class Broker(msgspec.Struct, frozen=True):
    """The broker as responses name it; `address` is `ip:port`."""

    cluster: str
    name: str
    address: str


class AclProcessor:
    """Changes the accounts in the files of one broker."""

    def __init__(self, broker: Broker, files: ReloadedFiles) -> None:
        self._broker = broker
        self._files = files

    def __repr__(self) -> str:
        return f"<AclProcessor {self._files!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update,
            RequestCode.DELETE_ACL_CONFIG: self.delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_white_addresses,
        }

    def update(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve UPDATE_AND_CREATE_ACL_CONFIG (50)."""
        header = command.header(UpdateAclHeader)
        log.info("account created or changed by request account=%s peer=%s", header.access_key, source.peer)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        return self._respond(failed, lambda files: files.set_account(changed_members(header)))

    def delete(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve DELETE_ACL_CONFIG (51)."""
        access_key = command.header(DeleteAclHeader).access_key
        log.info("account deleted by request account=%s peer=%s", access_key, source.peer)

        def delete(files: AclFiles) -> None:
            if not access_key or not files.delete_account(access_key):
                text = "null" if access_key is None else access_key
                raise AclError(f"The accesskey[{text}] corresponding to accessConfig has been deleted failed.")

        return self._respond(ResponseCode.DELETE_ACL_CONFIG_FAILED, delete)

    def update_white_addresses(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53)."""
        header = command.header(UpdateWhiteAddressesHeader)
        addresses, path = header.global_white_addrs, header.acl_file_full_path or ""
        log.info("global white addresses set by request addresses=%s peer=%s", addresses, source.peer)

        def update(files: AclFiles) -> None:
            if addresses is None or not files.set_white(parts_of(addresses), path):
                text = "null" if addresses is None else addresses
                raise AclError(f"The globalWhiteAddresses[{text}] has been updated failed.")

        return self._respond(ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, update)

    def versions(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_BROKER_CLUSTER_ACL_INFO (52)."""
        rules, broker = self._files.rules, self._broker
        versions = {path: msgspec.structs.asdict(version) for path, version in rules.versions.items()}
        header = AclVersionHeader(
            rules.default_version.encode(),
            javajson.dumps(versions).decode(),
            broker.name,
            broker.address,
            broker.cluster,
        )
        return RemotingCommand.response(ext=header)

    async def _respond(self, failed: ResponseCode, change: Callable[[AclFiles], None]) -> RemotingCommand:
        try:
            await self._files.run(change)
        except AclError as error:
            raise RequestError(failed, str(error)) from None
        except OSError as error:
            log.error("file of accounts not written reason=%s", error)
            raise RequestError(failed, str(error)) from None
        return RemotingCommand.response()


def changed_members(header: UpdateAclHeader) -> dict[str, object]:
    """Return the members of the account that a request sets. Raises AclError with RocketMQ's text."""
    access_key, secret_key = header.access_key, header.secret_key
    if not (is_long_enough(access_key) and is_long_enough(secret_key)):
        keys = f"accessKey={_shown(access_key)} and secretKey={_shown(secret_key)}"
        raise AclError(f"The {keys} cannot be null and length should longer than 6")
    members: dict[str, object] = {"accessKey": access_key, "secretKey": secret_key}
    if header.white_remote_address is not None:
        members["whiteRemoteAddress"] = header.white_remote_address
    members["admin"] = is_true(header.admin)
    defaults = {"defaultTopicPerm": header.default_topic_perm, "defaultGroupPerm": header.default_group_perm}
    members |= {name: permission for name, permission in defaults.items() if permission}
    for name, rules in (("topicPerms", header.topic_perms), ("groupPerms", header.group_perms)):
        if rules is not None:
            members[name] = checked_rules(parts_of(rules))
    return members


def checked_rules(rules: list[str]) -> list[str]:
    """Return rules such as `name=PUB`. Raises AclError with RocketMQ's text if one is invalid."""
    for rule in rules:
        parts = rule_parts(rule)
        if len(parts) != 2:
            raise AclError(
                f"Parse Resource format error for {rule}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if parts[1].strip() not in PERMISSIONS:
            raise AclError(
                f"Parse resource permission error for {rule}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
    return rules


def parts_of(text: str) -> list[str]:
    """Return the parts of a list in a request, as Java's String.split: empty parts at the end are dropped, except the
    only part of an empty text."""
    parts = text.split(SEPARATOR)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if text.strip(SEPARATOR) or not text else []


def _shown(value: str | None) -> str:
    return "null" if value is None else value
