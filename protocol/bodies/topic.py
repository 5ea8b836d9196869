"""Topics: their configuration, its version, and how a broker tells the name servers about both.

A `DataVersion` stands beside every table that others keep a copy of: who sees another version takes the table again. It
has to change with every change of the table.

A registration (103) carries the table as JSON, or compressed, in what RocketMQ 4.9 and its readers know:

    zlib( i32 length, DataVersion JSON | i32 topics, each i32 length, text | i32 length, filter server list JSON
          | from version 413 of the sender: i32 count, each i32 length, mapping of a static topic )

where the text of a topic is `name readQueueNums writeQueueNums perm topicFilterType attributes-JSON`, the attributes
from 5.x only; `order` and `topicSysFlag` do not travel. Static topics are not served: their mappings are not read, and
written as none. Source: docs/formats.md, "JSON bodies", "Registration".
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self

import msgspec

from skylarkmq.protocol.bodies.body import Body, BodyError
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.codes import Permission

STATIC_TOPIC_VERSION: Final = 413
MAX_REGISTRATION_BYTES: Final = 16 * 1024 * 1024
"""The largest registration, inflated: as much as one frame may carry uncompressed."""
QUOTED_TABLE_BYTES: Final = 2 * 1024 * 1024
"""The largest table of a registration in which bare numeric keys, those of static topics, are quoted: about 200 ms."""
MAX_TOPICS: Final = 65_536
"""Topics of one registration; to decode so many takes 0.2 s."""
_I32: Final = struct.Struct(">i")


class DataVersion(Body):
    """Version of a table: `timestamp` in ms, `counter` of changes."""

    most_request_bytes: ClassVar[int] = 4096

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(self.state_version, now_ms, self.counter + 1)


class TopicConfig(Body):
    """One topic on one broker. `perm`: bits of `Permission`; `topic_sys_flag`: 1 unit, 2 unit-sub."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = Permission.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def __str__(self) -> str:
        """The text that RocketMQ puts into remarks."""
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def permission_text(perm: int) -> str:
    """`RW-` and the like: R read, W write, X inherit."""
    bits = ((Permission.READ, "R"), (Permission.WRITE, "W"), (Permission.INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class TopicConfigSerializeWrapper(Body):
    """A broker's topics by name; the content of topics.json and of the answer to 21."""

    most_request_bytes: ClassVar[int] = MAX_REGISTRATION_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_TABLE_BYTES

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, Any] | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None


class RegisterBrokerBody(Body):
    """What a broker registers beside its addresses."""

    most_request_bytes: ClassVar[int] = MAX_REGISTRATION_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_TABLE_BYTES

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []

    def encode_compressed(self, version: int) -> bytes:
        """The compressed form, as a sender of this version ordinal writes it."""
        wrapper = self.topic_config_serialize_wrapper
        topics = list(wrapper.topic_config_table.values())
        plain = [_sized(wrapper.data_version.encode()), _I32.pack(len(topics))]
        plain += (_sized(_topic_text(topic, version).encode()) for topic in topics)
        plain.append(_sized(msgspec.json.encode(self.filter_server_list)))
        if version >= STATIC_TOPIC_VERSION:
            plain.append(_I32.pack(0))
        return zlib.compress(b"".join(plain))

    @classmethod
    def decode_compressed(cls, data: bytes | memoryview, most_topics: int = MAX_TOPICS) -> Self:
        """Return a registration in the compressed form. BodyError for anything else, and above the limits."""
        try:
            inflater = zlib.decompressobj()
            plain = memoryview(inflater.decompress(data, MAX_REGISTRATION_BYTES))
            if not inflater.eof:
                raise ValueError(f"the stream is cut off, or inflates to over {MAX_REGISTRATION_BYTES} bytes")
            version, at = _take(plain, 0)
            (count,) = _I32.unpack_from(plain, at)
            if count > most_topics:
                raise ValueError(f"{count} topics, the limit is {most_topics}")
            at += _I32.size
            topics = {}
            for _ in range(count):
                text, at = _take(plain, at)
                topic = _topic(str(text, "utf-8"))
                topics[topic.topic_name] = topic
            filter_servers, _ = _take(plain, at)
            wrapper = TopicConfigSerializeWrapper(DataVersion.decode_request(version), topics)
            return cls(wrapper, msgspec.json.decode(filter_servers, type=list[str]))
        except (struct.error, zlib.error, ValueError, RecursionError) as error:
            raise BodyError(f"the body is no compressed registration: {error}") from error


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _take(data: memoryview, at: int) -> tuple[memoryview, int]:
    """(the sized bytes at `at`, where they end)."""
    (length,) = _I32.unpack_from(data, at)
    start = at + _I32.size
    if not 0 <= length <= len(data) - start:
        raise ValueError(f"{length} bytes are announced and {len(data) - start} left")
    return data[start : start + length], start + length


def _topic_text(topic: TopicConfig, version: int) -> str:
    words: Iterable[object] = (
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
    )
    text = " ".join(map(str, words))
    return f"{text} {msgspec.json.encode(topic.attributes).decode()}" if version >= STATIC_TOPIC_VERSION else text


def _topic(text: str) -> TopicConfig:
    words = text.split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"no topic: {text[:200]!r}")
    name, read_queues, write_queues, perm, filter_type, *attributes = words
    return TopicConfig(
        name,
        int(read_queues),
        int(write_queues),
        int(perm),
        TopicFilterType(filter_type),
        attributes=msgspec.json.decode(attributes[0], type=dict[str, str]) if attributes else {},
    )
