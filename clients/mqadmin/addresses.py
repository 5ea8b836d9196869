"""The brokers that a command addresses: one (-b), or the brokers of a cluster (-c), in the order of RocketMQ's tool."""

from skylarkmq.clients.mqadmin.options import one_of
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.hash_order import bucket_order


async def master_addresses(admin: Admin, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the broker, or of each master of the cluster."""
    address, cluster = one_of(broker, cluster)
    return [address] if address is not None else bucket_order((await admin.masters(cluster)).values())


async def all_addresses(admin: Admin, broker: str | None, cluster: str | None) -> list[str]:
    """Return the address of the broker, or of each master and slave of the cluster."""
    address, cluster = one_of(broker, cluster)
    if address is not None:
        return [address]
    brokers = await admin.broker_addresses(cluster)
    return bucket_order(each for by_id in brokers.values() for each in by_id.values())
