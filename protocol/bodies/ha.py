"""The replication of a broker: the response to GET_BROKER_HA_STATUS (907) of RocketMQ 5.

Source: docs/reference/wire.md, "JSON bodies".
"""

import msgspec

from skylarkmq.protocol.bodies.body import Body


class HAConnectionInfo(Body):
    """One slave. Offsets are of the commit log, `diff` in bytes, `transferred_byte_in_second` in bytes per second."""

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class HAClientInfo(Body):
    """The connection of a slave to its master. Times are Unix ms."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class HARuntimeInfo(Body):
    """Response to GET_BROKER_HA_STATUS (907): the slaves of a master, or the connection of a slave."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionInfo] = []
    ha_client_runtime_info: HAClientInfo = msgspec.field(default_factory=HAClientInfo)
