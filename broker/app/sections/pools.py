"""The pools of a broker: how many requests of each type may wait, and for how long."""

import msgspec

from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.remoting.admission import Pool, PoolLimits


def pools_of(config: DaemonConfig) -> dict[str, Pool]:
    """Return every pool by name, with its capacity and limits."""
    return {name: Pool(name, capacity, limits) for name, (capacity, limits) in pool_limits_of(config).items()}


def pool_limits_of(config: DaemonConfig) -> dict[str, tuple[int, PoolLimits]]:
    """Return the capacity and the limits of each pool."""
    failure = config.fast_failure
    waits: dict[str, int] = msgspec.structs.asdict(config.waits) if failure.broker_fast_failure_enable else {}
    stall_ms = failure.os_page_cache_busy_time_out_mills if waits else None
    return {
        name: (
            capacity,
            PoolLimits(
                failure.thread_pool_queue_max_bytes,
                wait_ms=waits.get(name),
                stall_ms=stall_ms if name == "send" else None,
            ),
        )
        for name, capacity in msgspec.structs.asdict(config.pools).items()
    }
