"""A backfill: the pipeline reads the store of a broker, and later continues with the broker itself.

    --backfill broker-a=/backup/store     format("rocketmq-store"), to the end of the log
    without it                            format("rocketmq"), from the offsets in the same checkpoint

The table, the columns and the decoding are the same as in the pipeline, and each batch appears once, as in every run.
The hand-over is the checkpoint: clients/spark/store/store_stream.py writes the broker's next offsets to it. If it is
lost, a Delta or Iceberg table hands over: it has the same offsets (clients/spark/tables/batch_offsets.py).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.parts import StoreParts
from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS
from skylarkmq.protocol.bodies.message_queue import MessageQueue

_SHARED: Final = ("subscribe", "topic", "subscribePattern", "includeProperties", "failOnDataLoss")
"""Options of the topics that have the same meaning for a store."""

_SELECTING: Final = ("assign", "subExpression", "expressionType", "startingTimestamp", "startingOffsetsByTimestamp")
"""Options of the topics that a store does not have, and without which other messages would be read."""

_STORE_SELECTING: Final = ("key", "startingTimestamp", "endingTimestamp", "subscribe", "topic", "subscribePattern")
EARLIEST: Final = "earliest"


class Backfill(msgspec.Struct, frozen=True):
    """The store of a broker. `options`: more options of format("rocketmq-store")."""

    broker: str
    path: str
    options: Mapping[str, str] = {}


def backfill_of(text: str, options: Mapping[str, str]) -> Backfill:
    """Return the backfill of `BROKER=PATH`. Raises OptionError."""
    broker, _, path = text.partition("=")
    if not broker or not path:
        raise OptionError(f"--backfill must be BROKER=PATH, such as broker-a=/backup/store, not {text!r}")
    for name in _STORE_SELECTING:
        if name.lower() in {given.lower() for given in options}:
            raise OptionError(f"a backfill reads all messages of its topics: leave out --store-option {name}")
    return Backfill(broker, path, options)


def store_options(source: Mapping[str, str], backfill: Backfill) -> dict[str, str]:
    """Return the options of format("rocketmq-store") that read the messages which `source` would read.

    Raises OptionError if `source` selects messages by options that a store does not have.
    """
    given = {name.lower(): value for name, value in source.items()}
    for name in _SELECTING:
        if name.lower() in given:
            raise OptionError(f"a backfill reads all messages of its topics: leave out {name}")
    if given.get("startingoffsets", EARLIEST) != EARLIEST:
        raise OptionError("a backfill begins at the first message: leave out --starting-offsets")
    shared = {name: given[name.lower()] for name in _SHARED if name.lower() in given}
    return shared | {"path": backfill.path, "brokerName": backfill.broker} | dict(backfill.options)


def store_of(source: Mapping[str, str], backfill: Backfill) -> StoreParts:
    """Return the store, examined as a broker does it at its start. Raises OptionError."""
    try:
        return StoreParts(parse(STORE_OPTIONS, store_options(source, backfill)))
    except StoreUnreadable as error:
        raise OptionError(str(error)) from error


def end_of(store: StoreParts, broker: str) -> Positions:
    """Return the next offset of each queue at the end of the store."""
    ends = store.queue_ends(store.begin, store.end, {})
    return {MessageQueue(topic, broker, queue): end for (topic, queue), end in ends.items()}
