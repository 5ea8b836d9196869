"""Lists from name servers and brokers: the cluster, GET_BROKER_CLUSTER_INFO (106); topics,
GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206) and GET_TOPICS_BY_CLUSTER (224); tables of texts, GET_BROKER_RUNTIME_INFO (28)
and GET_KVLIST_BY_NAMESPACE (219).

Source: docs/reference/wire.md, "JSON bodies".
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
