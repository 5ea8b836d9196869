"""TAG subscriptions: which messages an expression matches, by hash and by text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData, SubscriptionData
from skylarkmq.protocol.filters.tag import TagFilter, is_tag_type, split_tags, subscribe
from skylarkmq.protocol.message import tags_code
from tests.harness.golden import bodies


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_expressions_that_match_every_message(expression: str | None) -> None:
    """Absent, empty and * match every message, with or without a tag."""
    everything = TagFilter.parse(expression)
    assert everything.sub_string == "*"
    assert all(everything.matches_hash(code) for code in (0, 1, -5, None))
    assert everything.matches_text(None)
    assert everything.matches_text("TagA")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("TagA", ["TagA"]), (" TagB||TagA || ", ["TagB", "TagA"]), ("a || a", ["a"]), ("||", []), ("a|b", ["a|b"])],
)
def test_splitting_of_expressions(expression: str, tags: list[str]) -> None:
    """Tags are the parts between ||, trimmed, without empty ones."""
    assert split_tags(expression) == tags
    assert TagFilter.parse(expression).tags_set == set(tags)


def test_matching_by_hash_and_text() -> None:
    """A subscribed tag matches by the hash in the queue unit and by its text; no tag and other tags do not."""
    wanted = TagFilter.parse("TagA || TagZZZZZZ")
    assert wanted.matches_hash(2_598_919)
    assert wanted.matches_hash(-367_331_910)
    assert wanted.matches_hash(0xFFFF_FFFF_EA1A_F5BA)
    assert wanted.matches_hash(None)
    assert not wanted.matches_hash(0)
    assert not wanted.matches_hash(2_598_920)
    assert wanted.matches_text("TagA")
    assert not wanted.matches_text("TagB")
    assert not wanted.matches_text(None)
    assert not wanted.matches_text("")


def test_texts_distinguish_tags_with_equal_hashes() -> None:
    """The client distinguishes two tags with the same hash."""
    wanted = TagFilter.parse("Aa")
    assert wanted.matches_hash(tags_code("BB"))
    assert not wanted.matches_text("BB")


def test_an_expression_without_tags_matches_nothing() -> None:
    """An expression of separators alone matches no message."""
    nothing = TagFilter.parse("||")
    assert not nothing.matches_hash(0)
    assert not nothing.matches_text("TagA")


def test_the_hashes_of_a_heartbeat_are_used() -> None:
    """The hashes in a heartbeat are used; without hashes those of the expression are used."""
    assert TagFilter.of(SubscriptionData("T", "TagA", [], [5])).code_set == {5}
    assert TagFilter.of(SubscriptionData("T", "TagA")).code_set == {2_598_919}
    assert TagFilter.of(SubscriptionData("T", "TagA", class_filter_mode=True)).matches_hash(1)


def test_golden_subscriptions() -> None:
    """Our subscription for an expression equals Java's."""
    subscriptions = [
        subscription
        for data in bodies("HEART_BEAT", "request")
        for consumer in HeartbeatData.decode(data).consumer_data_set
        for subscription in consumer.subscription_data_set
        if is_tag_type(subscription.expression_type)
    ]
    assert {subscription.sub_string for subscription in subscriptions} > {"*"}
    for theirs in subscriptions:
        ours = subscribe(theirs.topic, theirs.sub_string, theirs.sub_version)
        assert (sorted(ours.tags_set), sorted(ours.code_set)) == (sorted(theirs.tags_set), sorted(theirs.code_set))


def test_an_absent_type_is_tag() -> None:
    """An absent type is TAG; SQL92 is not."""
    assert is_tag_type(None)
    assert is_tag_type("")
    assert is_tag_type("TAG")
    (data, *_) = bodies("CHECK_CLIENT_CONFIG", "request")
    subscription = CheckClientRequestBody.decode(data).subscription_data
    assert subscription is not None
    assert not is_tag_type(subscription.expression_type)


@given(st.text(), st.text())
def test_any_text_is_an_expression(expression: str, tag: str) -> None:
    """Any text is an expression, and every tag that matches by text matches by hash."""
    wanted = TagFilter.parse(expression)
    assert wanted.matches_hash(tags_code(tag)) >= wanted.matches_text(tag)
