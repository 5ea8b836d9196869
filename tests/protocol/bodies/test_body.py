"""All bodies: captured ones of RocketMQ are read and kept, hostile ones are rejected."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.body import Body, BodyError
from skylarkmq.protocol.bodies.cluster import ClusterInfo, KVTable, TopicList
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerIdList, HeartbeatData
from skylarkmq.protocol.bodies.locks import LockRequest
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.route import TopicRouteData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.javajson import dumps, loads
from tests.harness.golden import bodies

GOLDEN: list[tuple[type[Body], str, str]] = [
    (TopicRouteData, "GET_ROUTEINFO_BY_TOPIC", "response"),
    (ClusterInfo, "GET_BROKER_CLUSTER_INFO", "response"),
    (TopicList, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", "response"),
    (TopicList, "GET_TOPICS_BY_CLUSTER", "response"),
    (KVTable, "GET_BROKER_RUNTIME_INFO", "response"),
    (KVTable, "GET_KVLIST_BY_NAMESPACE", "response"),
    (RegisterBrokerBody, "REGISTER_BROKER", "request"),
    (RegisterBrokerBody, "REGISTER_BROKER", "oneway"),
    (SubscriptionGroupConfig, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", "request"),
    (HeartbeatData, "HEART_BEAT", "request"),
    (CheckClientRequestBody, "CHECK_CLIENT_CONFIG", "request"),
    (ConsumerIdList, "GET_CONSUMER_LIST_BY_GROUP", "response"),
]
BODIES: list[type[Body]] = [
    *dict.fromkeys(body for body, _, _ in GOLDEN),
    ConsumerOffsets,
    DataVersion,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
]


def is_kept(captured: object, written: object) -> bool:
    """Whether every member and element of `captured` is in `written`, at its position: 5.x has members that 4.9
    lacks."""
    if isinstance(captured, dict) and isinstance(written, dict):
        return all(is_kept(value, written.get(key)) for key, value in captured.items())
    if isinstance(captured, list) and isinstance(written, list):
        return len(captured) == len(written) and all(map(is_kept, captured, written))
    return captured == written


@pytest.mark.parametrize(("body", "request_name", "kind"), GOLDEN)
def test_captured_bodies_are_kept(body: type[Body], request_name: str, kind: str) -> None:
    """Every captured body decodes; the encoded form has all its members and decodes to the same value."""
    captured = bodies(request_name, kind)
    assert captured
    for data in captured:
        decoded = body.decode(data)
        quoted = isinstance(decoded, TopicRouteData) and b'{"0":' in data
        written = decoded.encode_standard() if quoted and isinstance(decoded, TopicRouteData) else decoded.encode()
        assert body.decode(written) == decoded
        assert is_kept(loads(data), loads(written))


@pytest.mark.parametrize("body", [TopicList, KVTable, ConsumerIdList, CheckClientRequestBody, RegisterBrokerBody])
def test_captured_bodies_are_written_with_the_same_bytes(body: type[Body]) -> None:
    """Bodies without new members in 5.x are written with the exact bytes of 4.9.8."""
    for known, request_name, kind in GOLDEN:
        for data in bodies(request_name, kind) if known is body else ():
            written = body.decode(data).encode()
            assert written.replace(b'"attributes":{},', b"").replace(b'"stateVersion":0,', b"") == data


@pytest.mark.parametrize("body", BODIES)
def test_all_members_may_be_absent(body: type[Body]) -> None:
    """An empty object decodes to a body with defaults; no two bodies share their lists and maps."""
    assert body.decode(b"{}") == body()
    assert body.decode(body().encode()) == body()
    first, second = body(), body()
    for name in body.__struct_fields__:
        if isinstance(getattr(first, name), list | dict):
            assert getattr(first, name) is not getattr(second, name)


class QueueOffsets(Body):
    offset_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict)


def test_maps_by_queue_round_trip() -> None:
    """A map whose keys are objects decodes to a map by MessageQueue, and is written raw again."""
    (data,) = bodies("INVOKE_BROKER_TO_RESET_OFFSET", "response")
    decoded = QueueOffsets.decode(data)
    assert decoded.offset_table == {MessageQueue("WireTopic", "broker-a", n): 0 for n in (0, 1)}
    assert decoded.encode() == data


def test_queues_sort_by_topic_broker_and_id() -> None:
    """All members of a group assign queues by this order."""
    names = [("b", "a", 0), ("a", "b", 0), ("a", "a", 10), ("a", "a", 9)]
    queues = [MessageQueue(*name) for name in names]
    assert sorted(queues) == queues[::-1]
    assert str(queues[2]) == "a@a:10"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"null", b"5", b'"x"', b'{"clientID":5}', b'{"consumerDataSet":{}}', b"{" * 100_000,
     b'{"x":' * 100_000, b"[" * 100_000, b'{"consumerDataSet":[{"messageModel":"NONE"}]}',
     b'{"consumerDataSet":[{"messageModel":7}]}', b'{"heartbeatFingerprint":"x"}'],
)  # fmt: skip
def test_invalid_bodies_raise_body_error(data: bytes) -> None:
    """An invalid body raises BodyError: SYSTEM_ERROR for a peer, and a ValueError for a reader of files."""
    with pytest.raises(BodyError, match="not a valid HeartbeatData") as refused:
        HeartbeatData.decode(data)
    assert issubclass(BodyError, RequestError)
    assert issubclass(BodyError, ValueError)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


JSON_LIKE = st.text("{}[]:,\"'01e-. \n").map(str.encode)
MEMBERS = st.sampled_from([name for body in BODIES for name in body.__struct_encode_fields__])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(MEMBERS | st.text(max_size=3), values, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(BODIES), st.binary() | JSON_LIKE | VALUES.map(dumps))
@example(HeartbeatData, b"\xff" * 10)
@example(KVTable, b"{'table':{'a':1e999}}")
@example(DataVersion, b"{'counter':1e999}")
@example(ConsumerOffsets, b"{'offsetTable':{'a':{1.5:1}}}")
@example(ConsumerOffsets, b"{'offsetTable':{'a':{{}:1}}}")
def test_hostile_bytes_raise_only_body_error(body: type[Body], data: bytes) -> None:
    """Any bytes decode or raise BodyError; a decoded body can be written."""
    try:
        decoded = body.decode(data)
    except BodyError:
        return
    decoded.encode()


@pytest.mark.parametrize("size", [128 * 1024 + 1, 256 * 1024 + 1, 1024 * 1024, 2 * 1024 * 1024 + 1, 16 * 1024 * 1024])
def test_large_requests_do_not_reach_the_slow_readers(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Above the limits a request body is rejected by the fast decoder, or by its size alone."""
    quoted: list[int] = []

    def forbidden(*_arguments: object, **_options: object) -> None:
        raise AssertionError("the tolerant reader met a large body")

    def quoting(data: memoryview) -> bytes:
        quoted.append(len(data))
        return quote(data)

    quote = javajson.quote_numeric_keys
    monkeypatch.setattr(javajson, "loads", forbidden)
    monkeypatch.setattr(javajson, "quote_numeric_keys", quoting)
    data = (b'{"a":[' + b"{1:2}," * (size // 6 + 1))[:size]
    for kind in (HeartbeatData, DataVersion, RegisterBrokerBody, LockRequest):
        with pytest.raises(BodyError, match=f"not a valid {kind.__name__}"):
            kind.decode_request(memoryview(data))
    assert max(quoted, default=0) <= RegisterBrokerBody.most_quoted_bytes
    assert len(quoted) <= 3


def test_small_requests_are_read_tolerantly() -> None:
    """Request bodies that are not standard JSON are read as bodies in files are."""
    assert HeartbeatData.decode_request(b"{clientID:'c'}").client_id == "c"
    large = b'{"clientID":"c","x":"' + b"y" * 200_000 + b'",1:2}'
    assert HeartbeatData.decode_request(large).client_id == "c"


BOMBS = (
    b"[" * 500_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"clientID":' + b"9" * 5_000 + b"}",
    b'{"heartbeatFingerprint":' + b"9" * 5_000 + b"}",
    b'{"heartbeatFingerprint":"' + b"9" * 5_000 + b'"}',
    b'{"clientID":"\\ud800"}',
    b'{"clientID":NaN}',
    b'{"heartbeatFingerprint":1e400}',
    b'{"clientID":"a","clientID":"b"}',
    b'{"stateVersion":NaN,"counter":1e999}',
)


@pytest.mark.parametrize("kind", BODIES)
def test_hostile_values_are_read_or_rejected(kind: type[Body]) -> None:
    """Nesting, huge numbers, lone surrogates, NaN and duplicate members raise nothing but BodyError."""
    for bomb in BOMBS:
        try:
            assert isinstance(kind.decode_request(bomb), kind)
        except BodyError:
            continue
