"""Topics: their configuration, its version, and the registration that carries both from a broker to the name servers.

Every table that other processes copy has a `DataVersion`. A process that receives another version fetches the table
again, so the version must change with every change of the table.

REGISTER_BROKER (103) carries the table as JSON, or in the compressed form of RocketMQ 4.9 and later:

    zlib( i32 length, DataVersion JSON | i32 topics, each i32 length, text | i32 length, filter server list JSON
          | from version 413 of the sender: i32 count, each i32 length, mapping of a static topic )

The text of a topic is `name readQueueNums writeQueueNums perm topicFilterType attributes-JSON`, with the attributes
only from 5.x on; `order` and `topicSysFlag` are not included. Static topics are not supported: their mappings are not
read, and the number of mappings is written as 0. Source: docs/reference/wire.md, "JSON bodies", "Registration".
"""

import struct
import zlib
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self

import msgspec

from skylarkmq.protocol.bodies.body import Body, BodyError
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.codes import Permission
from skylarkmq.protocol.headers.fields import Int32

STATIC_TOPIC_VERSION: Final = 413
MAX_REGISTRATION_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a registration after inflating: the size of a frame, which could carry it uncompressed."""
QUOTED_TABLE_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of a registration's table in which bare numeric keys (of static topics) are quoted: about 200 ms."""
MAX_TOPICS: Final = 65_536
"""Maximum number of topics in one registration; decoding so many takes 0.2 s."""
_I32: Final = struct.Struct(">i")


class DataVersion(Body):
    """Version of a table: `timestamp` in ms, `counter` of changes."""

    most_request_bytes: ClassVar[int] = 4096

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(self.state_version, now_ms, self.counter + 1)


class TopicConfig(Body):
    """One topic on one broker. `perm`: bits of `Permission`; `topic_sys_flag`: 1 unit, 2 unit-sub."""

    topic_name: str = ""
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = Permission.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def __str__(self) -> str:
        """Return the text that RocketMQ uses in remarks."""
        attributes = ", ".join(f"{name}={value}" for name, value in self.attributes.items())
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}, attributes={{{attributes}}}]"
        )


def permission_text(perm: int) -> str:
    """Return a text such as `RW-`: R read, W write, X inherit."""
    bits = ((Permission.READ, "R"), (Permission.WRITE, "W"), (Permission.INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class TopicConfigSerializeWrapper(Body):
    """A broker's topics by name: the content of topics.json, and the response to GET_ALL_TOPIC_CONFIG (21)."""

    most_request_bytes: ClassVar[int] = MAX_REGISTRATION_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_TABLE_BYTES

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, Any] | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None


class RegisterBrokerBody(Body):
    """The body of REGISTER_BROKER (103)."""

    most_request_bytes: ClassVar[int] = MAX_REGISTRATION_BYTES
    most_quoted_bytes: ClassVar[int] = QUOTED_TABLE_BYTES

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []

    def encode_compressed(self, version: int) -> bytes:
        """Return the compressed form, as a broker of this version ordinal writes it."""
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
        """Return a registration in the compressed form. Raises BodyError if it is invalid or exceeds a limit."""
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
            raise BodyError(f"the body is not a compressed registration: {error}") from error


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _take(data: memoryview, at: int) -> tuple[memoryview, int]:
    """Return (the bytes whose length stands at `at`, the position after them)."""
    (length,) = _I32.unpack_from(data, at)
    start = at + _I32.size
    if not 0 <= length <= len(data) - start:
        raise ValueError(f"{length} bytes are announced, but {len(data) - start} left")
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
        raise ValueError(f"not a topic: {text[:200]!r}")
    name, read_queues, write_queues, perm, filter_type, *attributes = words
    return TopicConfig(
        name,
        int(read_queues),
        int(write_queues),
        int(perm),
        TopicFilterType(filter_type),
        attributes=msgspec.json.decode(attributes[0], type=dict[str, str]) if attributes else {},
    )
