"""Headers of requests to a name server: PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102),
REGISTER_BROKER (103), UNREGISTER_BROKER (104), GET_KVLIST_BY_NAMESPACE (219), GET_TOPICS_BY_CLUSTER (224),
QUERY_DATA_VERSION (322), BROKER_HEARTBEAT (904).

Source: docs/reference/wire.md, "Name server".
"""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class RegisterBrokerHeader(Header, gc=False, rename="camel"):
    """REGISTER_BROKER (103). `body_crc32` is masked to 31 bits, 0: not checked. Times in ms."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: BoolText | None = None
    compressed: BoolText | None = None
    body_crc32: Int32 = 0
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


class RegisterBrokerResponseHeader(Header, gc=False, rename="camel"):
    """Response to REGISTER_BROKER (103). The fields are set for slaves only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerHeader(Header, gc=False, rename="camel"):
    """One broker address: UNREGISTER_BROKER (104), QUERY_DATA_VERSION (322) and BROKER_HEARTBEAT (904)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64 | None = None


class DataVersionResponseHeader(Header, gc=False, rename="camel"):
    """Response to QUERY_DATA_VERSION (322): whether the broker must register again."""

    changed: BoolText


class KVConfigHeader(Header, gc=False, rename="camel"):
    """PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102) and GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class KVValueResponseHeader(Header, gc=False, rename="camel"):
    """Response to GET_KV_CONFIG (101)."""

    value: str | None = None


class ClusterHeader(Header, gc=False, rename="camel"):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str
