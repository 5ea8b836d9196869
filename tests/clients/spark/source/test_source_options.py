"""Combinations of the source's options."""

import pickle

import pytest

from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.source.source_options import SOURCE_OPTIONS, SourceOptions
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def made(**options: str) -> SourceOptions:
    return parse(SOURCE_OPTIONS, {"nameServer": "n:1", "subscribe": "T"} | options)


def test_defaults_are_those_of_the_documentation() -> None:
    """One range per task, all messages, no minimum, failure on loss."""
    options = made()
    assert options.subscribe == ("T",)
    assert (options.expression, options.expression_type, options.takes_everything) == ("*", "TAG", True)
    assert (options.max_trigger_delay_ms, options.pull_batch, options.pull_timeout_ms) == (900_000, 32, 3_000)
    assert options.fail_on_data_loss
    assert options.pull_group == "spark-rocketmq-source"
    assert options.tls is None


def test_options_can_be_pickled() -> None:
    """Pickled options are equal to the original, including JSON and secrets."""
    options = made(
        startingOffsets='{"T":{"b":{"0":-1}}}', accessKey="k", secretKey="s", startingOffsetsByTimestamp='{"T":5}'
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_topics_queues_and_patterns() -> None:
    """Lists lose their duplicates; queues are sorted."""
    assert made(subscribe=" b, a ,b").subscribe == ("a", "b")
    assigned = parse(SOURCE_OPTIONS, {"nameServer": "n:1", "assign": '{"T":{"b":[1,0,1]}}'})
    assert assigned.assign == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribePattern": "T.*"}, "give exactly one of subscribe"),
        ({"subscribe": " , "}, "topics separated by commas"),
        ({"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "startingOffsets must be earliest, latest, or JSON"),
        ({"endingOffsets": '{"T":{"b":{"0":-2}}}'}, "endingOffsets must be latest, or JSON"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is larger than maxOffsetsPerTrigger"),
        ({"minPartitions": "9", "maxPartitions": "8"}, "is larger than maxPartitions"),
        ({"expressionType": "SQL92"}, "needs a subExpression"),
        ({"nameServer": "host"}, "nameServer must be host:port"),
    ],
)
def test_contradictions_are_rejected(options: dict[str, str], said: str) -> None:
    """Each with its own message."""
    with pytest.raises(OptionError, match=said):
        made(**options)


def test_tags_and_expressions_become_subscriptions() -> None:
    """Tags become hashes; an SQL92 expression is unchanged."""
    tags = made(subExpression="a || b").subscription("T")
    assert (tags.sub_string, sorted(tags.tags_set), len(tags.code_set)) == ("a || b", ["a", "b"], 2)
    sql = made(subExpression="x > 1", expressionType="sql92")
    assert (sql.subscription("T").expression_type, sql.is_by_tags, sql.takes_everything) == ("SQL92", False, False)


def test_certificates_turn_tls_on() -> None:
    """So does tls.enable; the checks can be disabled."""
    assert made(**{"tls.enable": "true"}).tls is not None
    tls = made(**{"tls.trustCertPath": "/ca.pem", "tls.checkHostName": "false", "tls.keyPassword": "p"}).tls
    assert tls is not None
    assert (tls.trust_cert_path, tls.check_server, tls.check_host_name, tls.key_password) == (
        "/ca.pem",
        True,
        False,
        "p",
    )
