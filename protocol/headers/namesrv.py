"""Headers between brokers, operators and a name server: 100 to 104, 219, 224, 322, 904.

Source: docs/formats.md, "Name server".
"""

import msgspec

from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64


class RegisterBrokerHeader(Header, gc=False, rename="camel"):
    """Request 103. `body_crc32` is masked to 31 bits, 0 = not checked; times are milliseconds."""

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
    """Answer to 103, filled for slaves only."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerHeader(Header, gc=False, rename="camel"):
    """One broker address: requests 104, 322 and 904."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64 | None = None


class DataVersionResponseHeader(Header, gc=False, rename="camel"):
    """Answer to 322: whether the broker must register anew."""

    changed: BoolText


class KVConfigHeader(Header, gc=False, rename="camel"):
    """Requests 100, 101, 102 and 219."""

    namespace: str | None = None
    key: str | None = None
    value: str | None = None


class KVValueResponseHeader(Header, gc=False, rename="camel"):
    """Answer to 101."""

    value: str | None = None


class ClusterHeader(Header, gc=False, rename="camel"):
    """Request 224."""

    cluster: str
