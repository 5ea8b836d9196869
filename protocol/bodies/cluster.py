"""What name servers and brokers list: the cluster (106), topics (206, 224), and tables of texts (28, 219).

Source: docs/formats.md, "JSON bodies".
"""

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.route import BrokerData


class ClusterInfo(Body):
    """Brokers by name, and broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(Body):
    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body):
    table: dict[str, str] = {}
