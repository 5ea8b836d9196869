"""The stored form of the properties that a producer sent."""

import pytest

from skylarkmq.broker.processors.send.stored_properties import COMMON_PROPERTIES, PropertyCompletion
from skylarkmq.protocol.message import BatchRecord, decode_properties

CLUSTER = "CLUSTER\x01DefaultCluster\x02"


def complete(sent: str) -> str:
    return completion().complete(sent).encoded.decode()


def completion() -> PropertyCompletion:
    return PropertyCompletion("DefaultCluster", lambda: "MADE")


@pytest.mark.parametrize(
    "sent", ["KEYS\x01k1\x02UNIQ_KEY\x01U1\x02TAGS\x01TagA\x02", "KEYS\x01k1\x02UNIQ_KEY\x01U1\x02TAGS\x01TagA"]
)
def test_the_last_entry_is_terminated_and_the_cluster_added(sent: str) -> None:
    """With or without its last 0x02, the text is stored unchanged, followed by CLUSTER."""
    properties = completion().complete(sent)
    assert properties.encoded.decode() == "KEYS\x01k1\x02UNIQ_KEY\x01U1\x02TAGS\x01TagA\x02" + CLUSTER
    assert (properties.unique_key, properties.tags, properties.wait_flush) == ("U1", "TagA", True)


def test_a_message_without_a_unique_key_gets_one() -> None:
    """The broker adds UNIQ_KEY if the producer set none."""
    assert complete("") == "UNIQ_KEY\x01MADE\x02" + CLUSTER


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_deferred_message_returns_all_its_properties(name: str) -> None:
    """Deferral needs them as they would be stored."""
    properties = completion().complete(f"{name}\x013\x02a\x01b")
    assert properties.deferred == decode_properties(properties.encoded.decode())
    assert properties.deferred == {name: "3", "a": "b", "UNIQ_KEY": "MADE", "CLUSTER": "DefaultCluster"}


def test_half_messages_are_deferred() -> None:
    """A half message must not be visible to consumers."""
    assert completion().complete("TRAN_MSG\x01true\x02PGROUP\x01g\x02").deferred is not None


@pytest.mark.parametrize(
    "sent",
    ["DELAY\x010\x02", "TRAN_MSG\x01false\x02", "MY_DELAY\x013\x02", "note\x01DELAY\x02", "TIMER_DELAY_SEC\x010\x02"],
)
def test_text_that_only_resembles_a_delay_is_stored(sent: str) -> None:
    """Level 0 is no delay, and a match inside another name or value has no effect."""
    assert complete(sent) == sent + "UNIQ_KEY\x01MADE\x02" + CLUSTER
    assert completion().complete(sent).deferred is None


def test_properties_of_the_broker_are_removed() -> None:
    """A client's POP_CK is removed; its CLUSTER is replaced."""
    stored = decode_properties(complete("POP_CK\x01x\x02CLUSTER\x01Other\x02a\x01b\x02"))
    assert stored == {"a": "b", "UNIQ_KEY": "MADE", "CLUSTER": "DefaultCluster"}


@pytest.mark.parametrize(("sent", "wait"), [("WAIT\x01true\x02", True), ("WAIT\x01false\x02", False), ("", True)])
def test_wait_is_stored_and_honored(sent: str, wait: bool) -> None:
    """WAIT=false is stored as sent, and the response does not wait for the flush."""
    properties = completion().complete(sent)
    assert properties.wait_flush is wait
    assert properties.encoded.decode().startswith(sent)


def test_lone_surrogates_do_not_break_the_encoding() -> None:
    """Text without a UTF-8 form is replaced, as in Java."""
    assert b"a\x01?\x02" in completion().complete("a\x01\ud800\x02").encoded


def test_records_of_a_batch_keep_their_own_and_gain_the_batch_s_properties() -> None:
    """A property of the batch is added only if the record has none of that name; CLUSTER is last."""
    record = BatchRecord(0, b"", b"KEYS\x01k\x02UNIQ_KEY\x01own\x02WAIT\x01true")
    properties = completion().complete_record(record, {"WAIT": "false", "UNIQ_KEY": "batch", "extra": "e"})
    assert properties.encoded.decode() == "KEYS\x01k\x02UNIQ_KEY\x01own\x02WAIT\x01true\x02extra\x01e\x02" + CLUSTER
    assert properties.unique_key == "own"


def test_ordered_messages_do_not_take_the_fast_path() -> None:
    """They are counted by type, and runs of fast-path sends are not."""
    assert COMMON_PROPERTIES(b"UNIQ_KEY\x01A\x02") is not None
    assert COMMON_PROPERTIES(b"UNIQ_KEY\x01A\x02__SHARDINGKEY\x01k\x02") is None
