"""What of RocketMQ each official client is tried with: the plan of docs/compatibility.md.

A feature is a column of the document, a client of cases.py a row. A test says with `covers` what it tries of whom, by
`each_client` mostly, and so the plan makes the tests. What a client cannot do stands in LACKING with the reason; that
nothing is left out, and nothing tried that cannot be, holds test_compatibility.py.
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
    "asked": "operator calls",
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
    "asked": "an operator queries the state and offsets of members, and has one member consume a message",
}

NO_TIMERS: Final = "no method; setting the property `TIMER_DELAY_MS` works, and is tested"
NO_QUERY: Final = "no method"
NO_REPLIES: Final = "has neither requests nor replies"
NO_ANSWERS: Final = "does not respond to such requests; the operator gets a timeout error"
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
    ("cpp-0.4.4", "asked"): NO_ANSWERS,
    ("ali-ons-3.12", "orderly"): ONLY_CONCURRENT,
    ("ali-ons-3.12", "timers"): NO_TIMERS,
    ("ali-ons-3.12", "transactions"): "no transactions",
    ("ali-ons-3.12", "sql92"): "subscribes by tags only",
    ("ali-ons-3.12", "query"): NO_QUERY,
    ("ali-ons-3.12", "replies"): NO_REPLIES,
    ("ali-ons-3.12", "asked"): NO_ANSWERS,
}
"""Why a client is not tried with a feature: it has none such."""

NO_ACL: Final = "access control, which this broker does not have"
NO_SLAVES: Final = "replication and controllers, which this broker does not have"
NO_COLD_FLOW: Final = "RocketMQ's control of cold reads; here cold reads do not delay other requests"
NO_ROCKSDB: Final = "stores in RocksDB"
NO_POP: Final = "POP, which this broker does not serve"
ENDLESS: Final = "runs forever"

LEFT_OUT: Final[dict[str, str]] = {
    **dict.fromkeys(("clusterRT", "startMonitoring"), ENDLESS),
    **dict.fromkeys(("setConsumeMode", "exportPopRecord"), NO_POP),
    **dict.fromkeys(("addBroker", "removeBroker"), "broker containers"),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), "static topics"),
    **dict.fromkeys(("exportMetadataInRocksDB", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress"), NO_ROCKSDB),
    **dict.fromkeys(("resetMasterFlushOffset", "haStatus", "getSyncStateSet", "getBrokerEpoch"), NO_SLAVES),
    **dict.fromkeys(("getControllerMetaData", "getControllerConfig", "updateControllerConfig"), NO_SLAVES),
    **dict.fromkeys(("electMaster", "cleanBrokerMetadata"), NO_SLAVES),
    "dumpCompactionLog": "compacted topics",
    **dict.fromkeys(("getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"), NO_COLD_FLOW),
    **dict.fromkeys(("removeColdDataFlowCtrGroupConfig", "setCommitLogReadAheadMode"), NO_COLD_FLOW),
    **dict.fromkeys(("updateAclConfig", "deleteAclConfig", "getAclConfig", "clusterAclConfigVersion"), NO_ACL),
    "updateGlobalWhiteAddr": NO_ACL,
    **{
        f"{verb}{what}": NO_ACL
        for verb in ("create", "update", "delete", "get", "list", "copy")
        for what in ("User", "Acl")
    },
}
"""Why a command of mqadmin is not tried."""


def clients_with(feature: str) -> list[str]:
    """The clients that have a feature."""
    return [client for client in CLIENTS if (client, feature) not in LACKING]


def covers(feature: str, *clients: str) -> pytest.MarkDecorator:
    """The mark of a test, or of a parameter: it tries a feature of these clients."""
    return pytest.mark.covers(feature, *clients)


def each_client(feature: str) -> list[Any]:
    """A parameter for each client that has the feature."""
    return [pytest.param(client, id=client, marks=covers(feature, client)) for client in clients_with(feature)]


def pairs_of(marks: Iterable[pytest.Mark]) -> set[tuple[str, str]]:
    """What marks say that a test tries: clients with features."""
    return {(client, mark.args[0]) for mark in marks if mark.name == "covers" for client in mark.args[1:]}
