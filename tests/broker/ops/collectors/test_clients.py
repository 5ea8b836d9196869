"""Metrics of connected clients by language and version."""

from pathlib import Path

from skylarkmq.broker.ops.collectors.clients import ClientCollector
from skylarkmq.broker.ops.steps import Value
from skylarkmq.protocol.bodies.enums import ConsumeType
from skylarkmq.protocol.codes import VERSION
from tests.harness.broker_parts import BrokerParts, broker_parts, consumer, heartbeat


def values(parts: BrokerParts, name: str) -> dict[tuple[str, ...], object]:
    steps = ClientCollector(parts.sessions)()
    return {step.labels: step.value for step in steps if isinstance(step, Value) and step.name == name}


async def test_a_connection_of_several_producer_groups_counts_once(tmp_path: Path) -> None:
    """Connections are counted once, groups each with its own members."""
    with broker_parts(tmp_path) as parts:
        parts.peer().call(heartbeat(producers=("A", "B")))
        parts.peer(4322).call(heartbeat(producers=("A",)))
        assert values(parts, "rocketmq_producer_connections") == {("python", "v5_3_3"): 2}
        assert values(parts, "rocketmq_producer_count") == {("A",): 2, ("B",): 1}


async def test_unknown_languages_and_versions_share_a_label(tmp_path: Path) -> None:
    """Values from clients never become labels."""
    with broker_parts(tmp_path) as parts:
        for port, (language, version) in enumerate((("JAVA", 409), ("KLINGON", 30_000), (None, -5)), start=5_000):
            request = heartbeat(consumer(kind=ConsumeType.CONSUME_ACTIVELY), client_id=str(port))
            request.language, request.version = language, version
            parts.peer(port).call(request)
        members = values(parts, "rocketmq_consumer_connections")
        assert members == {
            ("G", "java", "v4_9_8", "pull", "false"): 1,
            ("G", "other", "other", "pull", "false"): 2,
        }
        assert VERSION == 479
