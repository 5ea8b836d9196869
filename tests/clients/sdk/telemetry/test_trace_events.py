"""Reading trace records, as our producers and consumers and those of RocketMQ write them."""

import pytest

from skylarkmq.clients.sdk.telemetry.trace_events import TraceEvent, events
from skylarkmq.clients.sdk.telemetry.trace_records import SUCCEEDED, Place, begun, finished, sent
from skylarkmq.protocol.message import Message, PropertyName
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import decode, encode

PLACE = Place("billing", "DefaultRegion")
HOST = encode_host("10.0.0.1", 10911)


def test_own_records_are_read_back() -> None:
    """The send and the handler call of a message, in the order in which they were written."""
    message = Message("Orders", b"body", tags="new", keys="k1")
    record = encode(
        topic="Orders",
        body=b"body",
        properties=f"{PropertyName.UNIQ_KEY}\x01A1\x02".encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        born_timestamp=0,
        born_host=HOST,
        store_timestamp=0,
        store_host=HOST,
    )
    (stored,) = decode(record)
    records = [
        sent(message, PLACE, ("A1", "0F"), store="10.0.0.1:10911", begun_ms=5, cost_ms=2, succeeded=False),
        begun(stored, PLACE, "request", 6),
        finished(stored, PLACE, "request", at_ms=9, cost_ms=3, outcome=SUCCEEDED),
    ]
    body = "".join(record.text for record in records).encode()
    assert events(body, "10.0.0.7") == [
        TraceEvent("Pub", "A1", "billing", 5, 2, False, "Orders", "new", "k1", "10.0.0.1:10911", "10.0.0.7"),
        TraceEvent("SubBefore", "A1", "billing", 6, keys="null", client_host="10.0.0.7", request_id="request"),
        TraceEvent("SubAfter", "A1", "billing", 9, 3, True, client_host="10.0.0.7", request_id="request"),
    ]


@pytest.mark.parametrize(
    ("record", "event"),
    [
        ("Pub 7 r g T A1 tag key h 4 9 0 true", TraceEvent("Pub", "A1", "g", 7, 9, True, "T", "tag", "key", "h")),
        (
            "Pub 7 r g T A1 tag key h 4 9 0 0F false ip",
            TraceEvent("Pub", "A1", "g", 7, 9, False, "T", "tag", "key", "h"),
        ),
        ("SubAfter q A1 3 true key 0", TraceEvent("SubAfter", "A1", "", 0, 3, True, keys="key", request_id="q")),
        (
            "EndTransaction 7 r g T A1 tag key h 1 tx COMMIT_MESSAGE false",
            TraceEvent("EndTransaction", "A1", "g", 7, topic="T", tags="tag", keys="key", store_host="h"),
        ),
        ("Recall 7 r g T A1 true", TraceEvent("Recall", "A1", "g", 7, topic="T")),
    ],
)
def test_records_of_other_clients_are_read(record: str, event: TraceEvent) -> None:
    """Those of old versions without offset id or time, and those with more fields than ours."""
    assert events((record.replace(" ", "\x01") + "\x02").encode()) == [event]


@pytest.mark.parametrize(
    "record",
    [
        "Pub 7",
        "Pub x r g T A1 tag key h 4 9 0 true",
        "Sideways 1 2",
        "",
        *(f"Pub {'9' * digits} r g T A1 tag key h 4 9 0 true" for digits in (20, 4_000, 5_000)),
        f"SubBefore 7 r g q A1 {1 << 63} key",
    ],
)
def test_records_that_cannot_be_read_are_skipped(record: str) -> None:
    """Any client may write to the trace topic."""
    body = f"{record}|Recall 7 r g T A1 true|".replace(" ", "\x01").replace("|", "\x02")
    assert [event.kind for event in events(body.encode())] == ["Recall"]
