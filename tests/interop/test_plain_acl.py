"""Access control of RocketMQ 4.9: a broker of RocketMQ and ours get the same requests, and decide alike.

Both read the same file of accounts. Ours runs with `aclStrict=false`. Refusals must have the same text; the end of a
remark, a stack frame, differs. Of permitted requests only the permission is compared.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from skylarkmq.protocol.signature import SigningKey
from tests.harness.raw import RawClient, RawResponse
from tests.interop.brokers import (
    BrokerUnderTest,
    Commands,
    apache_commands,
    running_broker,
    skylark_commands,
    wait_until,
)

pytestmark = pytest.mark.interop

VERSION: Final = "4.9.7"
SECRET: Final = "a-secret"
ACL_TEXT: Final = re.compile(r"org\.apache\.rocketmq\.acl\.common\.AclException: (.*), [^,]*", re.DOTALL)
SETTLED_S: Final = 2.0
"""RocketMQ reads a changed file after at most 0.5 s."""
FILE: Final[dict[str, Any]] = {
    "globalWhiteRemoteAddresses": ["10.9.8.*"],
    "accounts": [
        {"accessKey": "nothing", "secretKey": SECRET},
        {"accessKey": "orders-pub", "secretKey": SECRET, "topicPerms": ["orders=PUB"]},
        {"accessKey": "orders-sub", "secretKey": SECRET, "topicPerms": ["orders=SUB"], "groupPerms": ["G=SUB"]},
        {"accessKey": "sub-default", "secretKey": SECRET, "defaultTopicPerm": "SUB", "defaultGroupPerm": "SUB"},
        {"accessKey": "an-admin", "secretKey": SECRET, "admin": True},
        {"accessKey": "admin-list", "secretKey": SECRET, "admin": True, "topicPerms": ["orders=PUB"]},
        {"accessKey": "at-home", "secretKey": SECRET, "whiteRemoteAddress": "127.0.0.{1,2}", "note": "kept"},
        {"accessKey": "elsewhere", "secretKey": 12345678, "whiteRemoteAddress": "10.0-7.*.*"},
    ],
}
PULL: Final = {
    "consumerGroup": "G",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 1,
    "sysFlag": 0,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
}
SEND: Final = {
    "producerGroup": "PG",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 1,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "unitMode": "false",
}
SEND_V2: Final = {
    "a": "PG",
    "b": "orders",
    "c": "TBW102",
    "d": 1,
    "e": 0,
    "f": 0,
    "g": 1,
    "h": 0,
    "i": "",
    "j": 0,
    "k": "false",
    "l": 0,
    "m": "false",
}
HEARTBEAT: Final = json.dumps({
    "clientID": "c",
    "consumerDataSet": [
        {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "orders", "subString": "*"}, {"topic": "more", "subString": "*"}],
        }
    ],
    "producerDataSet": [{"groupName": "PG"}],
}).encode()  # fmt: skip
LOCKS: Final = b'{"consumerGroup":"G","clientId":"c","mqSet":[]}'
TOPIC: Final = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
REQUESTS: Final[list[tuple[int, Mapping[str, object], bytes]]] = [
    (10, SEND, b"body"),
    (10, SEND | {"topic": "%RETRY%G"}, b"body"),
    (10, SEND | {"topic": "RMQ_SYS_TRACE_TOPIC"}, b"body"),
    (310, SEND_V2, b"body"),
    (310, SEND_V2 | {"b": "others"}, b"body"),
    (310, SEND_V2 | {"b": "%RETRY%G", "a": "G"}, b"body"),
    (310, SEND_V2 | {"b": "%RETRY%H", "a": "G"}, b"body"),
    (310, SEND_V2 | {"b": "%RETRY%G"}, b"body"),
    (310, SEND_V2 | {"b": "%DLQ%G", "a": "G"}, b"body"),
    (320, SEND_V2, b""),
    (36, {"group": "G", "offset": 0, "delayLevel": 0}, b""),
    (11, PULL, b""),
    (11, PULL | {"topic": "others"}, b""),
    (11, PULL | {"consumerGroup": "H"}, b""),
    (11, PULL | {"consumerGroup": "a-longer-group", "topic": "a-longer-topic"}, b""),
    (12, {"topic": "orders", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}, b""),
    (34, {}, HEARTBEAT),
    (35, {"clientID": "c", "consumerGroup": "G"}, b""),
    (35, {"clientID": "c", "producerGroup": "PG"}, b""),
    (38, {"consumerGroup": "G"}, b""),
    (14, {"consumerGroup": "G", "topic": "orders", "queueId": 0}, b""),
    (15, {"consumerGroup": "G", "topic": "orders", "queueId": 0, "commitOffset": 0}, b""),
    (41, {}, LOCKS),
    (42, {}, LOCKS),
    (17, TOPIC, b""),
    (200, {}, b'{"groupName":"some-group"}'),
    (207, {"groupName": "no-such-group"}, b""),
    (215, {"topic": "no-such-topic"}, b""),
    (25, {}, b"noSuchKey=1"),
    (26, {}, b""),
    (30, {"topic": "orders", "queueId": 0}, b""),
    (51, {"accessKey": "no-such-account"}, b""),
]
CALLERS: Final = [
    (None, SECRET),
    ("", SECRET),
    ("no-such-account", SECRET),
    ("orders-pub", "another-secret"),
    ("elsewhere", SECRET),
    ("elsewhere", "12345678"),
    *((str(account["accessKey"]), SECRET) for account in FILE["accounts"][:7]),
]


class Decision(NamedTuple):
    """How a broker decided: the text of its refusal, or None."""

    code: int | None
    text: str | None


class Broker:
    """A running broker with its file of accounts."""

    def __init__(self, broker: BrokerUnderTest, file: Path) -> None:
        self.file = file
        host, _, port = broker.broker_address.partition(":")
        self._client = RawClient(host, int(port))

    def call(
        self, code: int, account: str | None, ext: Mapping[str, object], body: bytes = b"", secret: str = SECRET
    ) -> RawResponse:
        """Return the response to a request, signed unless `account` is None."""
        fields = {name: str(value) for name, value in ext.items()}
        if account is not None:
            fields |= {"AccessKey": account}
            content = "".join(fields[name] for name in sorted(fields)).encode()
            fields |= {"Signature": SigningKey(secret).sign(content, body)}
        return self._client.call(code, fields, body)

    def decision(self, *request: Any) -> Decision:
        response = self.call(*request)
        found = ACL_TEXT.fullmatch(response.remark or "")
        return Decision(response.code, found[1]) if found else Decision(None, None)

    def close(self) -> None:
        self._client.close()


def with_accounts(make: Any, home: Path, *others: Any) -> Commands:
    """Return the commands of a broker, and write its file of accounts."""
    commands: Commands = make(home, *others)
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(yaml.safe_dump(FILE, sort_keys=False))
    return commands


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """RocketMQ's broker, and ours."""
    theirs, ours = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("ours")
    strict = {"aclEnable": "true", "aclStrict": "false", "aclConfigDir": ours / "conf"}
    with (
        running_broker(partial(with_accounts, partial(apache_commands, VERSION)), theirs, {"aclEnable": "true"}) as one,
        running_broker(partial(with_accounts, skylark_commands), ours, strict) as other,
    ):
        pair = Broker(one, theirs / "conf" / "plain_acl.yml"), Broker(other, ours / "conf" / "plain_acl.yml")
        yield pair
        for broker in pair:
            broker.close()


@pytest.mark.parametrize(("account", "secret"), CALLERS, ids=[f"{name}, {secret}" for name, secret in CALLERS])
def test_both_brokers_decide_alike(brokers: tuple[Broker, Broker], account: str | None, secret: str) -> None:
    """For every request: permitted by both, or refused with the same text."""
    differences = []
    for code, ext, body in REQUESTS:
        theirs, ours = (broker.decision(code, account, ext, body, secret) for broker in brokers)
        if theirs != ours:
            differences.append((code, ext, theirs, ours))
    assert differences == []


KEYS: Final = {"accessKey": "new-account", "secretKey": SECRET, "admin": "false"}
CHANGES: Final[list[tuple[int, Mapping[str, object]]]] = [
    (50, {"accessKey": "new-account", "admin": "false"}),
    (50, KEYS | {"accessKey": "short"}),
    (50, KEYS | {"topicPerms": "a"}),
    (50, KEYS | {"topicPerms": "a=READ"}),
    (50, KEYS | {"topicPerms": ""}),
    (50, KEYS | {"accessKey": "another-account", "whiteRemoteAddress": "1.2"}),  # RocketMQ cannot create it any more
    (51, {"accessKey": "new-account"}),
    (50, KEYS | {"topicPerms": "a=PUB,b=SUB|PUB", "groupPerms": "g=SUB", "defaultTopicPerm": "PUB"}),
    (50, KEYS | {"admin": "true", "whiteRemoteAddress": "1.2.3.4", "defaultTopicPerm": ""}),
    (50, KEYS | {"accessKey": "at-home", "whiteRemoteAddress": ""}),
    (51, {"accessKey": "nothing"}),
    (51, {"accessKey": ""}),
    (51, {}),
    (53, {}),
    (53, {"globalWhiteAddrs": "10.1.1.1,10.2.*.*"}),
    (53, {"globalWhiteAddrs": "10.1.1.1", "aclFileFullPath": "/no/such/file.yml"}),
]


def test_both_brokers_change_the_file_alike(brokers: tuple[Broker, Broker]) -> None:
    """The same codes and remarks, and at the end the same text in the file, except for its times."""
    differences = []
    for code, ext in CHANGES:
        theirs, ours = (broker.call(code, "an-admin", ext) for broker in brokers)
        if (theirs.code, theirs.remark) != (ours.code, ours.remark):
            differences.append((code, ext, theirs, ours))
        time.sleep(SETTLED_S / 2)  # RocketMQ reads its own change again
    assert differences == []
    texts = [without_times(broker.file.read_text()).splitlines() for broker in brokers]
    assert texts[0] == texts[1]


def without_times(text: str) -> str:
    return re.sub(r"timestamp: \d+", "timestamp: 0", text)


def test_both_brokers_report_their_versions_alike(brokers: tuple[Broker, Broker]) -> None:
    """The same members, with counters by the path of the file."""
    responses = [broker.call(52, "an-admin", {}) for broker in brokers]
    assert responses[0].ext.keys() == responses[1].ext.keys()
    for broker, response in zip(brokers, responses, strict=True):
        versions = json.loads(response.ext["allAclFileVersion"])
        assert versions.keys() == {str(broker.file)}
        assert json.loads(response.ext["version"]).keys() == {"counter", "timestamp"}


def test_both_brokers_notice_a_changed_file(brokers: tuple[Broker, Broker]) -> None:
    """A white address of all callers takes effect without a restart."""
    for broker in brokers:
        values = yaml.safe_load(broker.file.read_text())
        broker.file.write_text(yaml.safe_dump(values | {"globalWhiteRemoteAddresses": ["127.*.*.*"]}))
        wait_until(partial(is_permitted, broker), "the changed file")


def is_permitted(broker: Broker) -> bool:
    return broker.decision(310, None, SEND_V2).text is None
