"""Routes: which brokers have the queues of a topic.

The keys of `brokerAddrs` are broker ids. Old clients get bare numbers. Clients that request standard JSON get quoted
keys and all text in ASCII. Source: docs/reference/wire.md, "Routes".
"""

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.body import Body


class QueueData(Body):
    """The queues of a topic on one broker."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(Body):
    """The addresses (`ip:port`) of one broker name, by broker id; 0 is the master."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """`order_topic_conf`: `broker-a:8;broker-b:8` for topics whose queue numbers are fixed."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}

    def encode_standard(self) -> bytes:
        """Return the route for strict JSON parsers: numeric keys quoted, non-ASCII characters escaped."""
        return javajson.dumps(self, quote_numeric_keys=True, ascii_only=True)
