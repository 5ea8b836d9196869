"""The properties of a copy, and its mark."""

import pytest

from skylarkmq.clients.sdk.messages.copied_properties import DROPPED
from skylarkmq.clients.spark.replay.copies import MARK, Origin, kept_properties, mark_prefix, origin_of
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.protocol.message import decode_properties, encode_properties

PREFIX = mark_prefix("r1", "Orders", "broker-a", 3)


def copied(**properties: str) -> dict[str, str]:
    """Return the properties of a copy, decoded."""
    return decode_properties(kept_properties(encode_properties(properties).encode(), PREFIX, 17).decode())


def test_a_copy_keeps_ids_keys_tags_and_the_producers_properties() -> None:
    """Everything that no broker or client acts on."""
    kept = {"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "7F", "__SHARDINGKEY": "s", "n": "größer", "MY_DELAY": "1"}
    assert copied(**kept) == kept | {MARK: "r1:Orders:broker-a:3:17"}


def test_a_copy_is_neither_delayed_nor_a_transaction_nor_a_retry() -> None:
    """Dropped properties go wherever they are, also several in a row; a name that only ends alike stays."""
    dropped = dict.fromkeys(sorted(DROPPED), "1")
    assert copied(**dropped) == {MARK: "r1:Orders:broker-a:3:17"}
    assert copied(a="1", **dropped, NOT_DELAY="2", DELAYED="3") == {
        "a": "1",
        "NOT_DELAY": "2",
        "DELAYED": "3",
        MARK: "r1:Orders:broker-a:3:17",
    }


@pytest.mark.parametrize("stored", [b"a\x01b", b"a\x01b\x02", b"DELAY\x013\x02a\x01b", b"a\x01b\x02DELAY\x013"])
def test_the_last_entry_may_have_no_end(stored: bytes) -> None:
    """RocketMQ writes the last 0x02 or leaves it out; a copy always has it."""
    kept = kept_properties(stored, PREFIX, 0)
    assert kept == b"a\x01b\x02" + PREFIX + b"0\x02"


def test_a_second_replay_replaces_the_mark() -> None:
    """The mark names the message that this replay has read."""
    assert copied(**{MARK: "r0:Old:b:1:1", "a": "b"}) == {"a": "b", MARK: "r1:Orders:broker-a:3:17"}


def test_a_mark_names_the_old_place() -> None:
    """Brokers may have colons in their names. Marks of other replays and damaged ones are ignored."""
    assert origin_of("r1:%DLQ%g:host:1:3:17", "r1") == Origin("%DLQ%g", "host:1", 3, 17)
    for mark in (None, "", "r2:Orders:b:3:17", "r1:Orders:b:3", "r1:Orders:b:x:17", "r1:Orders:b:3:-1"):
        assert origin_of(mark, "r1") is None


def test_numbers_of_a_mark_have_the_range_of_queues_and_offsets() -> None:
    """Producers can store marks of their own, with any text."""
    assert origin_of(f"r1:T:b:{2**31 - 1}:{2**63 - 1}", "r1") == Origin("T", "b", 2**31 - 1, 2**63 - 1)
    for numbers in (f"{2**31}:0", f"0:{2**63}", "0:\u00b2", "\u0661:0", "0:" + "7" * 5_000, "0:"):
        assert origin_of(f"r1:T:b:{numbers}", "r1") is None


@pytest.mark.parametrize("names", [("a\x02DELAY\x0118\x02", "b"), ("T", "b\x02"), ("T\x01", "b")])
def test_names_with_separators_of_properties_are_refused(names: tuple[str, str]) -> None:
    """They would add properties to the copies."""
    with pytest.raises(ReplayFailed, match="no valid names"):
        mark_prefix("r1", *names, 0)
