"""From the options of topics to those of a store; options that would select other messages are refused."""

from pathlib import Path

import pytest

from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.pipeline.backfill import Backfill, backfill_of, end_of, store_of, store_options
from skylarkmq.clients.spark.store.store_options import STORE_OPTIONS
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.arrow.store.test_stored import fill
from tests.harness.stores import opened

STORE = Backfill("a", "/store", {"maxBytesPerTrigger": "7"})


def test_a_store_is_read_with_the_options_of_the_topics() -> None:
    """Topics, properties and data loss have the same meaning; options of the cluster and of batches are left out."""
    source = {
        "nameServer": "x:1",
        "subscribePattern": "A.*",
        "maxOffsetsPerTrigger": "5",
        "startingOffsets": "earliest",
    }
    source |= {"includeproperties": "true", "failOnDataLoss": "false"}
    options = parse(STORE_OPTIONS, store_options(source, STORE))
    assert (options.path, options.broker_name, options.max_bytes_per_trigger) == ("/store", "a", 7)
    assert (options.topic_pattern, options.fail_on_data_loss) == ("A.*", False)
    assert "properties" in options.columns.schema.names


def test_a_backfill_is_named_by_broker_and_path() -> None:
    """The path may contain an equals sign."""
    assert backfill_of("a=/x=y", {}) == Backfill("a", "/x=y")
    for wrong in ("a", "a=", "=/x"):
        with pytest.raises(OptionError, match="must be BROKER=PATH"):
            backfill_of(wrong, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [("assign", "{}"), ("subExpression", "a"), ("startingTimestamp", "1"), ("startingOffsets", "latest")],
)
def test_options_that_select_other_messages_are_refused(name: str, value: str) -> None:
    """A store has no subscriptions; the hand-over needs all messages of its topics."""
    with pytest.raises(OptionError, match="leave out"):
        store_options({"subscribe": "T", name.lower(): value}, STORE)
    with pytest.raises(OptionError, match="leave out --store-option endingTimestamp"):
        backfill_of("a=/x", {"endingtimestamp": "1"})


def test_the_end_of_a_store_is_the_next_offset_of_each_queue(tmp_path: Path) -> None:
    """Of the selected topics."""
    with opened(tmp_path) as store:
        messages = fill(store, 60)
    ends = end_of(store_of({"subscribe": "T0"}, Backfill("a", str(tmp_path))), "a")
    counts = {queue: sum(1 for one in messages if one[:2] == ("T0", queue)) for queue in range(3)}
    with pytest.raises(OptionError, match="is not a store"):
        store_of({"subscribe": "T0"}, Backfill("a", str(tmp_path / "nowhere")))
    assert ends == {MessageQueue("T0", "a", queue): count for queue, count in counts.items()}
