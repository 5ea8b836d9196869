"""The state of a daemon with access control, read by the administrator: what the attacker must not change.

    before = read_state(broker, namesrv, "4.9")
    changed(before, after)      differences, except those that normal clients and rights to a topic allow

Compared are topics, groups, committed offsets, settings of the broker and of the name server, KV configuration,
routes, brokers, accounts and policies.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from skylarkmq.protocol import javajson
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SystemTopic
from tests.attack.accounts import OWN_GROUP, OWN_TOPIC
from tests.attack.normal_clients import KEPT, LATER, NORMAL_GROUPS
from tests.harness.raw import RawClient

AUTH_LIST_USER: Final = 3005
AUTH_LIST_ACL: Final = 3010
GET_BROKER_CLUSTER_ACL_INFO: Final = 52
NAMESPACES: Final = ("attack", "ORDER_TOPIC_CONFIG")
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""With its offsets the broker saves its own progress."""
NO_OFFSETS: Final = "No consumer offset in this broker"
IGNORED: Final = ("dataVersion",)
OWN_TOPICS: Final = (OWN_TOPIC, f"%RETRY%{OWN_GROUP}", f"%DLQ%{OWN_GROUP}")
NORMAL_TOPICS: Final = (KEPT, LATER)
TABLES: Final = (
    ("topic", RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
    ("group", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
    ("offsets", RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable"),
)
MAY_APPEAR: Final = (SystemTopic.TRACE, *OWN_TOPICS, *NORMAL_TOPICS, OWN_GROUP, *NORMAL_GROUPS)

State = dict[tuple[str, str], Any]
"""The parts of the state by kind and name."""


def read_state(broker: RawClient, namesrv: RawClient, generation: str) -> State:
    """Return the state. Both clients sign as the administrator. Raises AssertionError if a part may not be read."""
    state: State = {}
    for kind, code, member in TABLES:
        state |= {(kind, str(name)): value for name, value in _read(broker, code)[member].items()}
    state["settings", "broker"] = _text(broker, RequestCode.GET_BROKER_CONFIG)
    state["settings", "name server"] = _text(namesrv, RequestCode.GET_NAMESRV_CONFIG)
    state["routes", "brokers"] = _read(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    for namespace in NAMESPACES:
        response = namesrv.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace})
        state["kv", namespace] = response.body
    if generation == "5.3":
        for user in _read(broker, AUTH_LIST_USER, {"filter": ""}):
            state["user", user["username"]] = user
        for acl in _read(broker, AUTH_LIST_ACL, {"subjectFilter": "", "resourceFilter": ""}):
            state["policies", acl["subject"]] = acl
    else:
        state["accounts", "version"] = broker.call(GET_BROKER_CLUSTER_ACL_INFO).ext
    return state


def changed(before: State, after: State) -> Iterator[str]:
    """Yield the differences that no right explains."""
    for (kind, name), value in after.items():
        old = before.get((kind, name))
        if value != old and not _is_explained(kind, name, appeared=(kind, name) not in before):
            yield f"changed: {kind} {name} was {str(old)[:200]}, is {str(value)[:200]}"
    for kind, name in before.keys() - after.keys():
        yield f"changed: {kind} {name} is gone"


def _is_explained(kind: str, name: str, *, appeared: bool) -> bool:
    if kind == "offsets":
        topic, _, group = name.rpartition("@")
        if group == TRANSACTION_GROUP:
            return True
        normal = topic in NORMAL_TOPICS and group in NORMAL_GROUPS
        return normal or (topic in OWN_TOPICS and group == OWN_GROUP)
    return appeared and kind in ("topic", "group") and name in MAY_APPEAR


def _read(client: RawClient, code: int, header: Mapping[str, object] | None = None) -> Any:
    response = client.call(code, header)
    if response.remark == NO_OFFSETS:
        return {"offsetTable": {}}
    assert response.code == ResponseCode.SUCCESS, (code, response)
    return _without_versions(javajson.loads(response.body)) if response.body else []


def _text(client: RawClient, code: int) -> str:
    response = client.call(code)
    assert response.code == ResponseCode.SUCCESS, (code, response)
    return response.body.decode()


def _without_versions(tree: Any) -> Any:
    """Return the JSON value without data versions, which change with every change that a right allows."""
    if isinstance(tree, dict):
        return {key: _without_versions(value) for key, value in tree.items() if key not in IGNORED}
    return [_without_versions(value) for value in tree] if isinstance(tree, list) else tree
