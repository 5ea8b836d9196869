"""The plan of docs/reference/compatibility.md: the RocketMQ features that each official client is tested with.

A feature is a row of the document, a client of cases.py a column. The mark `covers` of a test names the feature and the
clients that it tests; most tests get it from `each_client`, so the plan parametrizes the tests. LACKING gives the
reason for each feature that a client does not have. test_compatibility.py checks that the tests cover the plan exactly.
"""

from collections.abc import Iterable
from typing import Any, Final

import pytest

from tests.interop.cases import CLIENTS

FEATURES: Final = {
    "concurrent": "concurrent",
    "orderly": "orderly",
    "broadcast": "broadcast",
    "retry": "retry → DLQ",
    "levels": "delay levels",
    "timers": "timers",
    "transactions": "transactions",
    "sql92": "SQL92",
    "query": "query",
    "reset": "reset",
    "replies": "request–reply",
    "operator_calls": "operator calls",
    "access": "access control",
}
"""From the name of a feature to its heading in the document; MEANINGS explains each."""

MEANINGS: Final = {
    "concurrent": "a thousand messages of every form, sent in every way that the client has, read by a group of two: "
    "each arrives once and unchanged, and when a member leaves, its queues move to the other member",
    "orderly": "a queue is read in order by one member at a time, also when the owner is killed and when messages fail",
    "broadcast": "each member of a group gets every message, once",
    "retry": "failed messages are redelivered, and after the last attempt become dead letters of the group",
    "levels": "messages delayed by level: none early, none more than a second late",
    "timers": "messages delivered at a time that the producer sets, or recalled before it",
    "transactions": "commit, rollback, and both after a transaction check",
    "sql92": "subscriptions by an expression over message properties",
    "query": "messages are found by key, by unique id and by offset id",
    "reset": "the offsets of a running group are reset to the beginning: by the broker, and by its members",
    "replies": "requests get their replies, of any size",
    "operator_calls": "an operator queries the state and offsets of members, and has one member consume a message",
    "access": "everything works with the right credentials; with wrong ones, none, or without a right to the topic "
    "the client is refused with RocketMQ's remark",
}

NO_TIMERS: Final = "no method; setting the property `TIMER_DELAY_MS` works, and is tested"
NO_QUERY: Final = "no method"
NO_REPLIES: Final = "has neither requests nor replies"
NO_RESPONSES: Final = "does not respond to such requests; the operator gets a timeout error"
ONLY_CONCURRENT: Final = "consumes concurrently only"

LACKING: Final[dict[tuple[str, str], str]] = {
    ("java-4.9.8", "timers"): NO_TIMERS,
    ("java-4.9.8-binary", "timers"): NO_TIMERS,
    ("go-2.1.2", "timers"): NO_TIMERS,
    ("go-2.1.2", "query"): NO_QUERY,
    ("cpp-0.4.4", "timers"): NO_TIMERS,
    ("cpp-0.4.4", "transactions"): "the wrapper has no transactions",
    ("cpp-0.4.4", "sql92"): "subscribes by tags only",
    ("cpp-0.4.4", "query"): NO_QUERY,
    ("cpp-0.4.4", "replies"): NO_REPLIES,
    ("cpp-0.4.4", "operator_calls"): NO_RESPONSES,
    ("ali-ons-3.12", "orderly"): ONLY_CONCURRENT,
    ("ali-ons-3.12", "timers"): NO_TIMERS,
    ("ali-ons-3.12", "transactions"): "no transactions",
    ("ali-ons-3.12", "sql92"): "subscribes by tags only",
    ("ali-ons-3.12", "query"): NO_QUERY,
    ("ali-ons-3.12", "replies"): NO_REPLIES,
    ("ali-ons-3.12", "operator_calls"): NO_RESPONSES,
}
"""The reason why a client is not tested with a feature: it does not have the feature."""

NO_ELECTIONS: Final = "controllers and elections of masters, which this broker does not have"
NO_COLD_FLOW: Final = "RocketMQ's control of cold reads; here cold reads do not delay other requests"
NO_ROCKSDB: Final = "stores in RocksDB"
NO_POP: Final = "POP, which this broker does not serve"
ENDLESS: Final = "runs forever"
SHOWS_SECRETS: Final = "returns the secret keys of all accounts"

LEFT_OUT: Final[dict[str, str]] = {
    **dict.fromkeys(("clusterRT", "startMonitoring"), ENDLESS),
    **dict.fromkeys(("setConsumeMode", "exportPopRecord"), NO_POP),
    **dict.fromkeys(("addBroker", "removeBroker"), "broker containers"),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), "static topics"),
    **dict.fromkeys(("exportMetadataInRocksDB", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress"), NO_ROCKSDB),
    **dict.fromkeys(("resetMasterFlushOffset", "getSyncStateSet", "getBrokerEpoch"), NO_ELECTIONS),
    **dict.fromkeys(("getControllerMetaData", "getControllerConfig", "updateControllerConfig"), NO_ELECTIONS),
    **dict.fromkeys(("electMaster", "cleanBrokerMetadata"), NO_ELECTIONS),
    "dumpCompactionLog": "compacted topics",
    "getAclConfig": SHOWS_SECRETS,
    **dict.fromkeys(("getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"), NO_COLD_FLOW),
    **dict.fromkeys(("removeColdDataFlowCtrGroupConfig", "setCommitLogReadAheadMode"), NO_COLD_FLOW),
}
"""The reason why a command of mqadmin is not tested."""

ACCESS_COMMANDS: Final = frozenset(
    (
        "updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr",
        *(f"{verb}User" for verb in ("create", "update", "delete", "get", "list", "copy")),
        *(f"{verb}Acl" for verb in ("create", "update", "delete", "get", "list", "copy")),
    )
)  # fmt: skip
"""Commands that need a broker with access control: test_access_admin.py."""


def clients_with(feature: str) -> list[str]:
    """Return the clients that have a feature."""
    return [client for client in CLIENTS if (client, feature) not in LACKING]


def covers(feature: str, *clients: str) -> pytest.MarkDecorator:
    """Return the mark of a test, or of a parameter, that tests a feature of these clients."""
    return pytest.mark.covers(feature, *clients)


def each_client(feature: str) -> list[Any]:
    """Return a parameter for each client that has the feature."""
    return [pytest.param(client, id=client, marks=covers(feature, client)) for client in clients_with(feature)]


def pairs_of(marks: Iterable[pytest.Mark]) -> set[tuple[str, str]]:
    """Return the (client, feature) pairs of the marks."""
    return {(client, mark.args[0]) for mark in marks if mark.name == "covers" for client in mark.args[1:]}
