"""Expressions of subscriptions, compiled once."""

from skylarkmq.broker.metadata import expressions
from skylarkmq.broker.metadata.client_sessions import Subscription
from skylarkmq.broker.metadata.expressions import compile_expression
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData


def test_an_expression_is_compiled_once() -> None:
    """All later subscriptions with the same expression share the test."""
    first, fault = compile_expression("SQL92", "a > 5 AND b = 'x'")
    assert first is not None
    assert fault is None
    assert compile_expression("SQL92", "a > 5 AND b = 'x'")[0] is first
    subscription = Subscription.of(SubscriptionData("T", "a > 5 AND b = 'x'", expression_type="SQL92"))
    assert (subscription.sql, subscription.matches, subscription.fault) == (first, None, None)


def test_faults_are_cached() -> None:
    """An expression that does not compile, or has an unknown type, has a reason instead of a test."""
    subscription = Subscription.of(SubscriptionData("T", "a > ", expression_type="SQL92"))
    assert subscription.sql is None
    assert (subscription.fault or "").startswith("line 1, column 5: ")
    assert compile_expression("CLASS", "x") == (None, "there are no expressions of type 'CLASS'")


def test_tags_are_not_compiled() -> None:
    """A tag expression has its own test, whatever it contains."""
    subscription = Subscription.of(SubscriptionData("T", "a > 5"))
    assert subscription.matches is not None
    assert subscription.sql is None is subscription.fault


def test_long_expressions_are_not_cached() -> None:
    """A megabyte is rejected at once, and not kept."""
    known = expressions._compiled.cache_info().currsize
    for number in range(5):
        test, fault = compile_expression("SQL92", f"a = {number} AND " * 100_000 + "b")
        assert test is None
        assert "characters are too many" in (fault or "")
    assert expressions._compiled.cache_info().currsize == known
