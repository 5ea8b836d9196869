"""Requests of normal clients as mappings of names to values, and the few exchanges that every test needs.

`Ledger` records acknowledged messages, and finds those that are missing later.
"""

import time
import zlib
from collections.abc import Mapping
from typing import Any, Final

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import decode_properties, encode_properties
from skylarkmq.protocol.record import Record, iterate
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import RawClient

KEPT: Final = "NormalKept"
LATER: Final = "NormalLater"
OFFSETS: Final = "normal"
BODY_MARK: Final = b"body of a normal client"
"""In the bodies of the messages that no attacker may read."""
BROKER_NAME: Final = "normalBroker"
NORMAL_GROUPS: Final = (OFFSETS, "CG", "P")
"""The group that commits offsets, that of single pulls, and that of producers."""
BEHIND: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
SUSPEND, SUBSCRIPTION = 2, 4
COMMIT: Final = 8


def send_header(topic: str, properties: Mapping[str, str] | str = "", **changed: object) -> dict[str, object]:
    """Return the fields of SEND_MESSAGE_V2 (310); keys of `changed` are letters."""
    text = properties if isinstance(properties, str) else encode_properties(properties)
    fields: dict[str, object] = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "h": 0, "j": 0}
    return fields | {"g": int(time.time() * 1000), "i": text, "k": "false", "m": "false"} | changed


def long_names(header: Mapping[str, object]) -> dict[str, object]:
    """Return the same fields for SEND_MESSAGE (10)."""
    names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties"
    names += " reconsumeTimes unitMode maxReconsumeTimes batch"
    by_letter = dict(zip("abcdefghijklm", names.split(), strict=True))
    return {by_letter[letter]: value for letter, value in header.items()}


def pull_header(topic: str, offset: int, queue_id: int = 0, **changed: object) -> dict[str, object]:
    """Return the fields of PULL_MESSAGE (11) for 32 messages, with a subscription to all; `suspendTimeoutMillis` needs
    SUSPEND."""
    fields: dict[str, object] = {
        "consumerGroup": "CG", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    return fields | changed


def read_queue(client: RawClient, topic: str, queue_id: int = 0) -> list[Record]:
    """Return every message of a queue. Raises AssertionError if a pull gets an error."""
    records: list[Record] = []
    offset = 0
    while True:
        response = client.call(RequestCode.PULL_MESSAGE, pull_header(topic, offset, queue_id))
        if response.code == ResponseCode.SUCCESS:
            found = [record for record in iterate(response.body) if isinstance(record, Record)]
            assert found, f"FOUND with {len(response.body)} bytes and no message at {topic}/{queue_id} {offset}"
            records += found
        else:
            assert response.code in BEHIND, response
        if (behind := int(response.ext["nextBeginOffset"])) <= offset:
            return records
        offset = behind


def await_message(client: RawClient, topic: str, offset: int, limit_s: float = WAIT_LIMIT_S) -> Record:
    """Wait for the message at `offset` of queue 0 by long polling. Raises AssertionError after `limit_s`."""
    end_s = time.monotonic() + limit_s
    wanted = pull_header(topic, offset, sysFlag=SUSPEND | SUBSCRIPTION, suspendTimeoutMillis=1_000)
    while time.monotonic() < end_s:
        response = client.call(RequestCode.PULL_MESSAGE, wanted)
        if response.code == ResponseCode.SUCCESS:
            record = next(iterate(response.body))
            assert isinstance(record, Record)
            return record
    raise AssertionError(f"no message at {topic}/0 {offset} within {limit_s:g} s")


class Ledger:
    """Acknowledged messages of one topic: by queue and offset, the CRC of the body."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], int] = {}

    def note(self, body: bytes, response_ext: Mapping[str, str]) -> None:
        """Record an acknowledgment."""
        self.acknowledged[int(response_ext["queueId"]), int(response_ext["queueOffset"])] = zlib.crc32(body)

    def send(self, client: RawClient, count: int, **properties: str) -> None:
        """Send messages in one write. Raises AssertionError if one is refused."""
        bodies = [b"%s %d" % (self.topic.encode(), len(self.acknowledged) + n) for n in range(count)]
        requests = [(send_header(self.topic, properties), body) for body in bodies]
        acknowledged_count = 0
        for number, response in client.pipeline(RequestCode.SEND_MESSAGE_V2, requests):
            assert response.code == ResponseCode.SUCCESS, response
            self.note(bodies[number], response.ext)
            acknowledged_count += 1
        assert acknowledged_count == count

    def missing(self, client: RawClient) -> list[str]:
        """Return the acknowledged messages that cannot be pulled from their queue and offset."""
        found: dict[tuple[int, int], int] = {}
        for queue_id in sorted({queue_id for queue_id, _ in self.acknowledged}):
            for record in read_queue(client, self.topic, queue_id):
                found[queue_id, record.queue_offset] = zlib.crc32(record.body)
        return [
            f"{self.topic}/{queue_id} #{offset} is {'another message' if found.get((queue_id, offset)) else 'missing'}"
            for (queue_id, offset), crc in sorted(self.acknowledged.items())
            if found.get((queue_id, offset)) != crc
        ]


def properties_of(record: Record) -> dict[str, Any]:
    """Return the properties of a record by name."""
    return decode_properties(bytes(record.properties).decode())
