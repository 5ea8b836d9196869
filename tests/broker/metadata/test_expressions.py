"""Expressions of subscriptions, compiled once."""

from skylarkmq.broker.metadata import expressions
from skylarkmq.broker.metadata.client_sessions import Subscription
from skylarkmq.broker.metadata.expressions import compile_expression
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData


def test_compiled_once() -> None:
    """The same expression is compiled for the first who subscribes by it only."""
    first, fault = compile_expression("SQL92", "a > 5 AND b = 'x'")
    assert first is not None
    assert fault is None
    assert compile_expression("SQL92", "a > 5 AND b = 'x'")[0] is first
    subscription = Subscription.of(SubscriptionData("T", "a > 5 AND b = 'x'", expression_type="SQL92"))
    assert (subscription.sql, subscription.matches, subscription.fault) == (first, None, None)


def test_faults_are_remembered() -> None:
    """What does not compile, and what is of an unknown type, has no test, and says why."""
    subscription = Subscription.of(SubscriptionData("T", "a > ", expression_type="SQL92"))
    assert subscription.sql is None
    assert (subscription.fault or "").startswith("line 1, column 5: ")
    assert compile_expression("CLASS", "x") == (None, "there are no expressions of type 'CLASS'")


def test_tags_need_nothing_compiled() -> None:
    """A tag expression has its own test, even if it looks like something else."""
    subscription = Subscription.of(SubscriptionData("T", "a > 5"))
    assert subscription.matches is not None
    assert subscription.sql is None is subscription.fault


def test_what_is_too_long_is_not_kept() -> None:
    """A megabyte is refused at once, and forgotten."""
    known = expressions._compiled.cache_info().currsize
    for number in range(5):
        test, fault = compile_expression("SQL92", f"a = {number} AND " * 100_000 + "b")
        assert test is None
        assert "characters are too many" in (fault or "")
    assert expressions._compiled.cache_info().currsize == known
