"""The checks of a daemon with access control: the responses to the attacker, and the state before and after.

    responses = Responses(generation, is_broker=True)       one for each of the attacker's connections
    responses.expect(requests); responses.feed(data)
    responses.findings

    state = read_state(arena)                               as the administrator
    changes(before, after)

`Responses` reports the violations of

    refused     a caller without the right gets RocketMQ's refusal, without fields and body. A request that cannot be
                read may get another error
    secret      no frame to the attacker contains a secret key, or the body of a normal message; except that in 4.9
                every account may read a message by its offset (33)
    names       a response to a caller that is not verified contains no name of a normal topic or group, except those
                that its request contains

The table of rights here is that of the documents, written a second time: docs/reference/compatibility.md, access
control.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from skylarkmq.protocol.codes import RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command
from tests.attack.accounts import OWN_GROUP, OWN_TOPIC, SECRET_KEYS, Generation
from tests.attack.callers import Caller
from tests.attack.generators import OddRequest
from tests.attack.normal_clients import BODY_MARK, KEPT, LATER

SHOWN: Final = 20
SECRETS: Final = (BODY_MARK, *(key.encode() for key in SECRET_KEYS))
NAMES: Final = (KEPT.encode(), LATER.encode())
MINE: Final = frozenset({OWN_TOPIC, OWN_GROUP, f"%RETRY%{OWN_GROUP}", f"%DLQ%{OWN_GROUP}"})
UNREADABLE: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER, ResponseCode.MESSAGE_ILLEGAL)

UNCHECKED_PLAIN: Final = frozenset(
    {
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.CHECK_CLIENT_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.VIEW_BROKER_STATS_DATA, RequestCode.GET_BROKER_CONSUME_STATS, RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_BROKER_HA_STATUS,
    }
)  # fmt: skip
"""Requests that 4.9 leaves unchecked and that change nothing; and heartbeats, which may contain no consumer."""
UNCHECKED_USERS: Final = frozenset(
    {
        RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.END_TRANSACTION,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)  # fmt: skip
"""Requests that name no resource in 5.3: of producers, and of clients that send no topic."""
OPEN_TOPIC: Final[Mapping[str, str]] = {"4.9": SystemTopic.TRACE, "5.3": "DefaultCluster_REPLY_TOPIC"}
"""Every account may send traces in 4.9, and replies in 5.3."""
UNCHECKED: Final[Mapping[str, frozenset[int]]] = {"4.9": UNCHECKED_PLAIN, "5.3": UNCHECKED_USERS}
NAMESRV_CHANGES: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG, RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT, RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)  # fmt: skip
TOPIC_FIELDS: Final = ("topic",)
TOPIC_AND_GROUP: Final = ("topic", "consumerGroup")
RESOURCES: Final[Mapping[int, tuple[str, ...]]] = {
    RequestCode.SEND_MESSAGE: TOPIC_FIELDS,
    RequestCode.SEND_MESSAGE_V2: ("b",),
    RequestCode.SEND_BATCH_MESSAGE: ("b",),
    RequestCode.SEND_REPLY_MESSAGE: TOPIC_FIELDS,
    RequestCode.SEND_REPLY_MESSAGE_V2: ("b",),
    RequestCode.RECALL_MESSAGE: TOPIC_FIELDS,
    RequestCode.PULL_MESSAGE: TOPIC_AND_GROUP,
    RequestCode.LITE_PULL_MESSAGE: TOPIC_AND_GROUP,
    RequestCode.QUERY_MESSAGE: TOPIC_FIELDS,
    RequestCode.UPDATE_CONSUMER_OFFSET: TOPIC_AND_GROUP,
    RequestCode.QUERY_CONSUMER_OFFSET: TOPIC_AND_GROUP,
    RequestCode.CONSUMER_SEND_MSG_BACK: ("group",),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ("consumerGroup",),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: ("group",),
}
"""Fields with the resources of requests that OTHER_TOPIC may send."""
NAMED_IN_BODY: Final = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG)
NOT_SUPPORTED: Final = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_BUSY)


class Responses:
    """The frames of one connection to the attacker, and what is wrong with them."""

    def __init__(self, generation: Generation, findings: list[str], *, is_broker: bool) -> None:
        self._generation = generation
        self._is_broker = is_broker
        self._frames = FrameDecoder()
        self._requests: dict[int, OddRequest] = {}
        self._findings = findings
        self.judged = 0

    def __repr__(self) -> str:
        return f"<Responses {len(self._requests)} expected>"

    def expect(self, requests: Iterable[OddRequest]) -> None:
        """Note requests that are sent on this connection."""
        self._requests |= {request.opaque: request for request in requests if request.opaque is not None}

    def feed(self, data: bytes) -> None:
        """Check the frames in the received data."""
        for frame in self._frames.feed(memoryview(data)):
            _, head, body = frame
            content = bytes(head) + bytes(body)
            try:
                command = decode_command(frame)
            except ProtocolError as error:
                self._report(f"unreadable response: {error}: {content[:200]!r}")
                continue
            request = None
            if command is not None and command.is_response:
                request = self._requests.pop(command.opaque, None)
            self._check(request, command, content)

    def _check(self, request: OddRequest | None, command: RemotingCommand | None, content: bytes) -> None:
        sent = b"" if request is None else request.data
        for secret in SECRETS:
            is_open = secret == BODY_MARK and self._reads_any_message(request)
            if secret in content and secret not in sent and not is_open:
                self._report(f"secret: {_shown(request)} got {content[:300]!r}")
        if request is None or command is None or request.caller is None:
            return
        self.judged += 1
        if not request.caller.is_verified and self._is_broker:
            for name in NAMES:
                if name in content and name not in sent:
                    self._report(f"names: {_shown(request)} got {content[:300]!r}")
        is_wrong = must_be_refused(self._generation.name, request, is_broker=self._is_broker)
        if is_wrong and not self._is_refused(command, request):
            self._report(f"refused: {_shown(request)} got {command.code} {content[:200]!r}")

    def _reads_any_message(self, request: OddRequest | None) -> bool:
        """Return whether the request may read a message by its offset: in 4.9, every account may."""
        if request is None or request.caller is None or self._generation.name != "4.9":
            return False
        return request.caller.is_verified and request.code == RequestCode.VIEW_MESSAGE_BY_ID

    def _is_refused(self, command: RemotingCommand, request: OddRequest) -> bool:
        if command.code in NOT_SUPPORTED:
            return True
        if command.ext_fields() or len(command.body):
            return False
        if self._generation.is_refusal(command.code, command.remark or ""):
            return True
        if not self._is_broker and command.code == ResponseCode.NO_PERMISSION:  # namesrvAuth
            return True
        assert request.caller is not None
        return request.caller.is_verified and command.code in UNREADABLE

    def _report(self, finding: str) -> None:
        if len(self._findings) < SHOWN:
            self._findings.append(finding)


def must_be_refused(generation: str, request: OddRequest, *, is_broker: bool) -> bool:
    """Return whether the caller has no right to send the request."""
    assert request.caller is not None
    code = request.code
    if code is None:
        return False
    if not is_broker:
        return code in NAMESRV_CHANGES
    if not request.caller.is_verified:
        return True
    if code in UNCHECKED[generation]:
        return False
    if code in NAMED_IN_BODY and request.caller is Caller.OTHER_TOPIC:
        return any(name in _body_of(request) for name in NAMES)
    if code not in RESOURCES:
        return True
    names = [request.fields.get(field) for field in RESOURCES[code]]
    if OPEN_TOPIC[generation] in names:
        return False
    if request.caller is Caller.WITHOUT_RIGHTS:
        return True
    return all(isinstance(name, str) for name in names) and not MINE.issuperset(names)


def _body_of(request: OddRequest) -> bytes:
    return request.data[8 + int.from_bytes(request.data[5:8], "big") :]


def _shown(request: OddRequest | None) -> str:
    if request is None or request.caller is None:
        return "a request"
    fields = {name: str(value)[:40] for name, value in request.fields.items()}
    return f"{request.caller.value}: code {request.code} {str(fields)[:300]} {request.data[-60:]!r}"
