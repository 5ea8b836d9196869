"""Access control of a daemon under attack: its accounts, and how each generation is set up.

generation = GENERATIONS["5.3"]
generation.settings(directory)      settings of the daemon; files that it reads are written below the directory
generation.prepare(admin)           requests that create users and policies; once, after the first start
generation.is_refusal(response)     whether a response is RocketMQ's refusal

account           rights
ADMINISTRATOR     everything
NORMAL            the topics and groups of normal clients
WITHOUT_RIGHTS    none
OTHER_TOPIC       `OWN_TOPIC` and `OWN_GROUP`, which belong to the attacker
UNKNOWN           does not exist
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylarkmq.protocol.codes import ResponseCode
from tests.attack.normal_clients import KEPT, LATER, NORMAL_GROUPS
from tests.harness.raw import Credentials, RawClient

ADMINISTRATOR: Final = Credentials("administrator", "secret of the administrator")
NORMAL: Final = Credentials("normalclient", "secret of normal clients")
WITHOUT_RIGHTS: Final = Credentials("withoutrights", "secret without rights")
OTHER_TOPIC: Final = Credentials("othertopic", "secret of another topic")
UNKNOWN: Final = Credentials("unknownaccount", "secret of no account")
ACCOUNTS: Final = (ADMINISTRATOR, NORMAL, WITHOUT_RIGHTS, OTHER_TOPIC)
SECRET_KEYS: Final = tuple(account.secret_key for account in ACCOUNTS)

OWN_TOPIC: Final = "Attack0"
OWN_GROUP: Final = "attackers0"
ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException: "
AUTH_CREATE_USER: Final = 3001
AUTH_CREATE_ACL: Final = 3006


class Rights(NamedTuple):
    """The topics that an account may publish to and subscribe to, and the groups that it may consume with."""

    account: Credentials
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


RIGHTS: Final = (
    Rights(NORMAL, (KEPT, LATER), NORMAL_GROUPS),
    Rights(WITHOUT_RIGHTS),
    Rights(OTHER_TOPIC, (OWN_TOPIC,), (OWN_GROUP,)),
)


class Generation(NamedTuple):
    """One generation of RocketMQ's access control."""

    name: str
    settings: Callable[[Path], Mapping[str, Any]]
    prepare: Callable[[RawClient], None]
    is_refusal: Callable[[int, str], bool]


def _plain_settings(directory: Path) -> dict[str, object]:
    """Write `conf/plain_acl.yml`; JSON is YAML."""
    accounts = [{"accessKey": ADMINISTRATOR.access_key, "secretKey": ADMINISTRATOR.secret_key, "admin": True}]
    accounts += [_plain_account(rights) for rights in RIGHTS]
    (directory / "conf").mkdir(parents=True, exist_ok=True)
    file = directory / "conf" / "plain_acl.yml"
    file.touch(0o600)
    file.write_text(json.dumps({"globalWhiteRemoteAddresses": [], "accounts": accounts}, indent=1))
    return {"aclEnable": "true", "aclConfigDir": directory / "conf", "namesrvAuth": "true"}


def _plain_account(rights: Rights) -> dict[str, object]:
    return {
        "accessKey": rights.account.access_key,
        "secretKey": rights.account.secret_key,
        "whiteRemoteAddress": "",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "DENY",
        "topicPerms": [f"{topic}=PUB|SUB" for topic in rights.topics],
        "groupPerms": [f"{group}=SUB" for group in rights.groups],
    }


def _users_settings(_directory: Path) -> dict[str, object]:
    first = {"username": ADMINISTRATOR.access_key, "password": ADMINISTRATOR.secret_key}
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps(first),
        "namesrvAuth": "true",
    }


def _create_users(admin: RawClient) -> None:
    for rights in RIGHTS:
        name, password = rights.account
        user = {"username": name, "password": password, "userType": "Normal", "userStatus": "enable"}
        _succeed(admin, AUTH_CREATE_USER, {"username": name}, user)
        entries = [_entry(f"Topic:{topic}", "Pub", "Sub") for topic in rights.topics]
        entries += [_entry(f"Group:{group}", "Sub") for group in rights.groups]
        if entries:
            subject = f"User:{name}"
            policies = [{"policyType": "Custom", "entries": entries}]
            _succeed(admin, AUTH_CREATE_ACL, {"subject": subject}, {"subject": subject, "policies": policies})


def _entry(resource: str, *actions: str) -> dict[str, object]:
    return {"resource": resource, "actions": list(actions), "decision": "Allow"}


def _succeed(admin: RawClient, code: int, header: Mapping[str, object], body: Mapping[str, object]) -> None:
    response = admin.call(code, header, json.dumps(body).encode())
    assert response.code == ResponseCode.SUCCESS, response


def _is_plain_refusal(code: int, remark: str) -> bool:
    return code == ResponseCode.SYSTEM_ERROR and remark.startswith(ACL_EXCEPTION)


def _is_refusal(code: int, _remark: str) -> bool:
    return code == ResponseCode.NO_PERMISSION


GENERATIONS: Final[Mapping[str, Generation]] = {
    "4.9": Generation("4.9", _plain_settings, lambda _admin: None, _is_plain_refusal),
    "5.3": Generation("5.3", _users_settings, _create_users, _is_refusal),
}
