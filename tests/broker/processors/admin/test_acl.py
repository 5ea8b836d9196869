"""Requests for accounts of RocketMQ 4.9: what they change, and RocketMQ's remarks.

The expected values follow from RocketMQ 4.9.8: AdminBrokerProcessor, PlainPermissionManager, Permission.
"""

from collections.abc import Awaitable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from skylarkmq.broker.access.plain_acl.files import AclFiles
from skylarkmq.broker.access.plain_acl.reloading import ReloadedFiles
from skylarkmq.broker.processors.admin.acl import AclProcessor, Broker, parts_of
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
SET_WHITE = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
KEYS = {"accessKey": "account", "secretKey": "a-secret"}


class Peer(NamedTuple):
    peer: str = "192.0.2.1:1"


class Fixture:
    """A processor over the files of a directory."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "plain_acl.yml"
        files = AclFiles(directory, lambda: 7)
        files.open()
        self.processor = AclProcessor(Broker("cluster", "broker-a", "192.0.2.9:10911"), ReloadedFiles(files))

    async def call(self, code: RequestCode, **ext: str) -> RemotingCommand:
        peer: Any = Peer()
        response = self.processor.handlers()[code](peer, RemotingCommand(code=code, ext=ext))
        result = await response if isinstance(response, Awaitable) else response
        assert result is not None
        return result

    async def refusal(self, code: RequestCode, **ext: str) -> tuple[int, str]:
        with pytest.raises(RequestError) as raised:
            await self.call(code, **ext)
        return raised.value.code, raised.value.remark

    def accounts(self) -> Any:
        return (yaml.safe_load(self.path.read_text()) or {}).get("accounts")


@pytest.fixture
def it(tmp_path: Path) -> Fixture:
    return Fixture(tmp_path)


async def test_a_request_sets_all_members(it: Fixture) -> None:
    """Lists are split at commas; the response is an empty success."""
    lists = {"topicPerms": "a=PUB,b=SUB|PUB", "groupPerms": "g=SUB"}
    defaults = {"defaultTopicPerm": "PUB", "defaultGroupPerm": "SUB", "whiteRemoteAddress": "1.2.3.4"}
    response = await it.call(UPDATE, **KEYS, **lists, **defaults, admin="true")
    assert (response.code, response.remark, response.ext) == (0, None, None)
    members = {**KEYS, **defaults, "admin": True, "topicPerms": ["a=PUB", "b=SUB|PUB"], "groupPerms": ["g=SUB"]}
    assert it.accounts() == [members]


async def test_absent_members_stay_and_admin_does_not(it: Fixture) -> None:
    """RocketMQ's header has no absent flag; blank permissions do not replace others."""
    await it.call(
        UPDATE, **KEYS, admin="true", topicPerms="a=PUB", defaultTopicPerm="PUB", whiteRemoteAddress="1.2.3.4"
    )
    await it.call(UPDATE, **KEYS, defaultTopicPerm="", whiteRemoteAddress="")
    assert it.accounts() == [
        {**KEYS, "admin": False, "topicPerms": ["a=PUB"], "defaultTopicPerm": "PUB", "whiteRemoteAddress": ""}
    ]


FORMAT = ".\nThe expected resource format is 'Res=Perm'. For example: topicA=SUB"
PERMISSION = ".\nThe expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."


@pytest.mark.parametrize(
    ("ext", "remark"),
    [
        ({}, "The accessKey=null and secretKey=null cannot be null and length should longer than 6"),
        (
            {"accessKey": "account"},
            "The accessKey=account and secretKey=null cannot be null and length should longer than 6",
        ),
        (
            {"accessKey": "123456", "secretKey": "1234567"},
            "The accessKey=123456 and secretKey=1234567 cannot be null and length should longer than 6",
        ),
        (KEYS | {"topicPerms": "a"}, f"Parse Resource format error for a{FORMAT}"),
        (KEYS | {"topicPerms": ""}, f"Parse Resource format error for {FORMAT}"),
        (KEYS | {"groupPerms": "a=PUB=SUB"}, f"Parse Resource format error for a=PUB=SUB{FORMAT}"),
        (KEYS | {"topicPerms": "a=PUB,b=READ"}, f"Parse resource permission error for b=READ{PERMISSION}"),
        (KEYS | {"whiteRemoteAddress": "1.2"}, "Netaddress examine Exception netaddress is 1.2"),
    ],
)
async def test_an_invalid_account_is_refused(it: Fixture, ext: dict[str, str], remark: str) -> None:
    """With 209 and RocketMQ's remark; the file stays as it was."""
    assert await it.refusal(UPDATE, **ext) == (209, remark)
    assert it.accounts() is None


@pytest.mark.parametrize(("ext", "shown"), [({}, "null"), ({"accessKey": ""}, ""), ({"accessKey": "none"}, "none")])
async def test_an_account_that_is_not_there_is_not_deleted(it: Fixture, ext: dict[str, str], shown: str) -> None:
    """With 210 and RocketMQ's remark."""
    await it.call(UPDATE, **KEYS)
    text = f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed."
    assert await it.refusal(DELETE, **ext) == (210, text)
    assert it.accounts() == [{**KEYS, "admin": False}]


@pytest.mark.parametrize(
    ("ext", "remark"),
    [
        ({}, "The globalWhiteAddresses[null] has been updated failed."),
        (
            {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/no/such.yml"},
            "The globalWhiteAddresses[1.2.3.4] has been updated failed.",
        ),
        ({"globalWhiteAddrs": "1.2.3.4,1.2"}, "Netaddress examine Exception netaddress is 1.2"),
    ],
)
async def test_invalid_white_addresses_are_refused(it: Fixture, ext: dict[str, str], remark: str) -> None:
    """With 211."""
    assert await it.refusal(SET_WHITE, **ext) == (211, remark)
    assert it.path.read_text() == ""


async def test_white_addresses_replace_the_earlier_ones(it: Fixture) -> None:
    """In the default file if the request names none."""
    await it.call(SET_WHITE, globalWhiteAddrs="1.2.3.4,5.6.7.*")
    await it.call(SET_WHITE, globalWhiteAddrs="9.9.9.9,", aclFileFullPath="")
    assert yaml.safe_load(it.path.read_text()) == {
        "globalWhiteRemoteAddresses": ["9.9.9.9"],
        "dataVersion": [{"counter": 2, "timestamp": 7}],
    }


async def test_a_file_that_cannot_be_written_is_the_reason(it: Fixture) -> None:
    """The remark is the error of the operating system."""
    it.path.with_name("plain_acl.yml.tmp").mkdir()
    code, remark = await it.refusal(UPDATE, **KEYS)
    assert code == 209
    assert "Is a directory" in remark


async def test_versions(it: Fixture) -> None:
    """An empty file has none, as in RocketMQ; the broker is named as it registers."""
    response = await it.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    assert response.ext == {
        "version": '{"counter":0,"timestamp":7}',
        "allAclFileVersion": "{}",
        "brokerName": "broker-a",
        "brokerAddr": "192.0.2.9:10911",
        "clusterName": "cluster",
    }
    await it.call(UPDATE, **KEYS)
    response = await it.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    assert (response.ext or {})["version"] == '{"counter":1,"timestamp":7}'
    assert (response.ext or {})["allAclFileVersion"] == f'{{"{it.path}":{{"counter":1,"timestamp":7}}}}'


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", [""]), ("a", ["a"]), ("a,b", ["a", "b"]), ("a,,", ["a"]), (",a", ["", "a"]), (",", []), (" ", [" "])],
)
def test_lists_are_split_as_in_java(text: str, parts: list[str]) -> None:
    """String.split drops empty parts at the end."""
    assert parts_of(text) == parts
