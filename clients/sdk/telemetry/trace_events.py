"""Trace records of RocketMQ as events: the sends and handler calls of a message, with their times and results.

A body of the trace topic holds records of many messages. Every client of the cluster may write there, so a record that
cannot be read is skipped, with a line in the log. Fields: clients/sdk/telemetry/trace_records.py. Source:
docs/reference/wire.md, "Message traces".
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import printable
from skylarkmq.clients.sdk.telemetry.trace_records import FIELD_END, RECORD_END
from skylarkmq.protocol.decimals import INT64_MAX

log = logging.getLogger(__name__)


class TraceEvent(msgspec.Struct, frozen=True):
    """One event of a message. Members that its kind does not have are empty, 0, or True.

    `kind`: Pub (sent), SubBefore (a handler is called), SubAfter (the handler has ended), EndTransaction or Recall.
    `time_ms`: Unix time; old clients leave it out of SubAfter. `client_host`: the address that stored the trace.
    """

    kind: str
    msg_id: str
    group: str = ""
    time_ms: int = 0
    cost_ms: int = 0
    succeeded: bool = True
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    request_id: str = ""
    retry_times: int = 0


def events(body: bytes, client_host: str = "") -> list[TraceEvent]:
    """Return the events in the body of one trace message, in their order."""
    found = []
    for record in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *fields = record.split(FIELD_END)
        reader = _READERS.get(kind)
        if reader is None:
            continue
        try:
            found.append(msgspec.structs.replace(reader(fields), client_host=client_host))
        except (IndexError, ValueError):
            log.info("trace record skipped, it cannot be read record=%s", printable(record))
    return found


def _number(text: str) -> int:
    """Return a number of 64 bits. Raises ValueError."""
    number = int(text)
    if not -INT64_MAX <= number <= INT64_MAX:
        raise ValueError(f"{len(text)} digits")
    return number


def _pub(fields: Sequence[str]) -> TraceEvent:
    time_ms, _, group, topic, msg_id, tags, keys, store_host, _, cost_ms, _, *rest = fields
    return TraceEvent(
        "Pub",
        msg_id,
        group,
        _number(time_ms),
        _number(cost_ms),
        rest[0 if len(rest) == 1 else 1].lower() == "true",  # RocketMQ before 4.4 has no offset id before it
        topic=topic,
        tags=tags,
        keys=keys,
        store_host=store_host,
    )


def _sub_before(fields: Sequence[str]) -> TraceEvent:
    time_ms, _, group, request_id, msg_id, retry_times, keys, *_ = fields
    return TraceEvent(
        "SubBefore",
        msg_id,
        group,
        _number(time_ms),
        keys=keys,
        request_id=request_id,
        retry_times=_number(retry_times),
    )


def _sub_after(fields: Sequence[str]) -> TraceEvent:
    request_id, msg_id, cost_ms, succeeded, keys, *rest = fields
    time_ms, group = rest[1:3] if len(rest) >= 3 else ("0", "")
    return TraceEvent(
        "SubAfter",
        msg_id,
        group,
        _number(time_ms),
        _number(cost_ms),
        succeeded.lower() == "true",
        keys=keys,
        request_id=request_id,
    )


def _end_transaction(fields: Sequence[str]) -> TraceEvent:
    time_ms, _, group, topic, msg_id, tags, keys, store_host, *_ = fields
    return TraceEvent(
        "EndTransaction", msg_id, group, _number(time_ms), topic=topic, tags=tags, keys=keys, store_host=store_host
    )


def _recall(fields: Sequence[str]) -> TraceEvent:
    time_ms, _, group, topic, msg_id, succeeded, *_ = fields
    return TraceEvent("Recall", msg_id, group, _number(time_ms), succeeded=succeeded.lower() == "true", topic=topic)


_READERS: Final[dict[str, Callable[[Sequence[str]], TraceEvent]]] = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
    "Recall": _recall,
}
