"""The head of a pull response: everything up to the body.

Clients need all four offsets whatever the result was. Heads in JSON and MessagePack come from templates; heads in the
binary dialect come from the general encoder, with the same fields. Source: docs/reference/wire.md, "Pull".
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Final

from skylarkmq.broker.processors.pull.checks import PullConfig
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import VERSION, Flag, ResponseCode
from skylarkmq.protocol.command import JSON, LANGUAGE, MSGPACK, RemotingCommand
from skylarkmq.protocol.frame import encode_prefix
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader
from skylarkmq.protocol.msgpack_header import encode_positional
from skylarkmq.protocol.serialize import encode_head

MASTER_ID: Final = 0

_JSON: Final = (
    b'{"code":%%d,"extFields":{"groupSysFlag":"%%d","maxOffset":"%%d","minOffset":"%%d","nextBeginOffset":"%%d",'
    b'"suggestWhichBrokerId":"%%d","topicSysFlag":"%%d"},"flag":%d,"language":"%s","opaque":%%d,"remark":"%%s",'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
) % (Flag.RESPONSE, LANGUAGE.encode(), VERSION)

_PREFIX: Final = Struct(">ii")  # of a JSON frame (dialect 0)
_I32: Final = Struct(">i")
_SMALLEST: Final = -(2**31)  # encoded in five bytes in MessagePack
_AN_I32, _AN_I64 = 0xD2, 0xD3

_FOUND: Final = GetStatus.FOUND
_JSON_FOUND: Final = _JSON.replace(b'"code":%d', b'"code":0').replace(b'"remark":"%s"', b'"remark":"FOUND"')


def suggested_broker_id(config: PullConfig, group: SubscriptionGroupConfig, *, behind_memory: bool) -> int:
    """Return the broker id of the replica that a consumer should pull from next."""
    if not config.slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if behind_memory else group.broker_id


Pieces = tuple[bytes, bytes, bytes, bytes, bytes]
"""Parts of a head: the bytes before the largest, smallest and next offset and the opaque, and those after it."""


def found_pieces(topic: TopicConfig, group: SubscriptionGroupConfig, suggested_broker: int = MASTER_ID) -> Pieces:
    """Return the parts that the JSON heads of a group's responses with messages of a topic have in common."""
    flag, before_max, before_min, before_next, before_broker, before_topic, before_opaque, after = _JSON_FOUND.split(
        b"%d"
    )
    fixed = b"%b%d%b%d%b" % (before_broker, suggested_broker, before_topic, topic.topic_sys_flag, before_opaque)
    return b"%b%d%b" % (flag, group.group_sys_flag, before_max), before_min, before_next, fixed, after


def python_found_head(
    pieces: Pieces, max_offset: int, min_offset: int, next_offset: int, opaque: int, size: int
) -> bytes:
    """Return a JSON response frame up to its body of `size` bytes."""
    before_max, before_min, before_next, before_opaque, after = pieces
    fields = before_max, max_offset, before_min, min_offset, before_next, next_offset, before_opaque, opaque, after
    header = b"%b%d%b%d%b%d%b%d%b" % fields
    length = len(header)
    return _PREFIX.pack(4 + length + size, length) + header


_compiled_gather: Final = compiled.load("gather")
found_head: Final[Callable[[Pieces, int, int, int, int, int], bytes]] = (
    python_found_head if _compiled_gather is None else _compiled_gather.found_head
)


def pull_response_head(
    request: RemotingCommand,
    code: ResponseCode,
    result: GetResult,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    suggested_broker: int = MASTER_ID,
) -> bytes:
    """Return the response frame up to a body of `result.total_bytes`; the remark is the status.

    `suggested_broker` is suggestWhichBrokerId: the replica that the consumer should pull from next.
    """
    if request.dialect == MSGPACK:
        return _packed_head(request, code, result, topic, group, suggested_broker)
    if request.dialect != JSON:
        return _general_head(request, code, result, topic, group, suggested_broker)
    header = _JSON % (
        code,
        group.group_sys_flag,
        result.max_offset,
        result.min_offset,
        result.next_begin_offset,
        suggested_broker,
        topic.topic_sys_flag,
        request.opaque,
        result.status.name.encode(),
    )
    return encode_prefix(JSON, len(header), result.total_bytes) + header


def _packed_head(
    request: RemotingCommand,
    code: ResponseCode,
    result: GetResult,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    suggested_broker: int,
) -> bytes:
    pack, length, outer, between = _packed_pieces(code, result.status)
    return pack(
        4 + length + result.total_bytes,
        MSGPACK << 24 | length,
        outer,
        request.opaque,
        between,
        _AN_I64,
        suggested_broker,
        _AN_I64,
        result.next_begin_offset,
        _AN_I64,
        result.min_offset,
        _AN_I64,
        result.max_offset,
        _AN_I32,
        topic.topic_sys_flag,
        _AN_I32,
        group.group_sys_flag,
    )


@cache
def _packed_pieces(code: ResponseCode, status: GetStatus) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Return the packing function of a head, the header's length, and the bytes before the opaque and between the
    opaque and the first offset."""
    response = RemotingCommand.response(code, status.name)
    response.opaque = _SMALLEST
    whole = encode_positional(response, PullMessageResponseHeader(1, 1, 1, 1, 1, 1))
    outer, _, rest = whole.partition(_I32.pack(_SMALLEST))
    between = rest[: -len(b"111111")]
    head = Struct(f">iI{len(outer)}si{len(between)}sBqBqBqBqBiBi")
    return head.pack, head.size - _PREFIX.size, outer, between


def _general_head(
    request: RemotingCommand,
    code: ResponseCode,
    result: GetResult,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    suggested_broker: int = MASTER_ID,
) -> bytes:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=suggested_broker,
        next_begin_offset=result.next_begin_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        topic_sys_flag=topic.topic_sys_flag,
        group_sys_flag=group.group_sys_flag,
    )
    response = RemotingCommand.response(code, result.status.name, header).in_response_to(request)
    return encode_head(response, result.total_bytes)
