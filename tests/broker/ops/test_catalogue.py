"""The catalogue of metrics, and the document generated from it."""

from pathlib import Path

from skylarkmq.broker.ops.catalogue import CATALOGUE, Kind
from tests.harness.metrics_document import document

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
# The metrics that Grafana's dashboard 10477 reads, besides the runtime information and the clients' own metrics.
DASHBOARD_10477 = {
    "rocketmq_broker_tps", "rocketmq_broker_qps", "rocketmq_producer_tps", "rocketmq_producer_message_size",
    "rocketmq_producer_offset", "rocketmq_consumer_tps", "rocketmq_consumer_message_size", "rocketmq_consumer_offset",
    "rocketmq_group_get_latency_by_storetime", "rocketmq_group_diff", "rocketmq_group_retrydiff",
    "rocketmq_topic_retry_offset", "rocketmq_topic_dlq_offset",
}  # fmt: skip


def test_the_document_equals_the_catalogue() -> None:
    """`python -m tests.harness.metrics_document > docs/reference/metrics.md` regenerates it."""
    assert DOCUMENT.read_text() == document()


def test_all_rows_follow_the_naming_rules() -> None:
    """Our names have units and suffixes as in Prometheus; counters end in _total; labels are unique."""
    for row in CATALOGUE.values():
        assert row.name.startswith(("rocketmq_", "skylark_", "process_")), row
        if row.kind is Kind.COUNTER or row.name.startswith("skylark_"):
            assert row.name.endswith("_total") == (row.kind is Kind.COUNTER), row
        assert len(set(row.all_labels)) == len(row.all_labels), row
        assert row.help.endswith("."), row


def test_the_exporter_s_dashboard_finds_its_metrics() -> None:
    """Its other metrics come from the runtime information, and from clients."""
    assert CATALOGUE.keys() >= DASHBOARD_10477
