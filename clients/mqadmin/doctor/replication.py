"""Checks of replication: GET_BROKER_HA_STATUS (907) of masters and slaves, compared with their settings.

RocketMQ 4.9 does not serve the request; its brokers are not examined.
"""

import re
from collections.abc import Iterator
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, Finding, NotExamined, Outcomes, error, warning
from skylarkmq.clients.mqadmin.doctor.subject import Subject, Target, is_master
from skylarkmq.clients.mqadmin.people.broker_state import number_of
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.bodies.ha import HARuntimeInfo

MAX_BYTES_BEHIND: Final = 64 << 20
"""Copies that lack more of the log are a finding."""
SILENT_AFTER_S: Final = 20
"""haHousekeepingInterval: a connection without a byte for longer is broken. Masters send something every 5 s."""
_START_SLAVE: Final = "Start its slaves, and check that they can connect to haListenPort of the master."


async def replication(subject: Subject) -> Outcomes:
    """Masters have the copies that their settings require, and no copy is far behind."""
    found: dict[Target, HARuntimeInfo] = {}
    for target in await subject.known_states():
        try:
            found[target] = await subject.admin.brokers.ha_status(target.address)
        except ClientError as problem:
            yield NotExamined(str(target), f"the broker does not report its replication: {problem}")
    configs = await subject.configs()
    for target, info in found.items():
        if is_master(target):
            config = configs.get(target)
            slaves = sum(its.name == target.name and not is_master(its) for its in await subject.targets())
            findings = master_findings(target, info, config if isinstance(config, dict) else {}, slaves)
        else:
            received_ms = (await subject.known_states())[target].received_ms
            findings = slave_findings(target, info, received_ms)
        for finding in findings:
            yield finding


def master_findings(target: Target, info: HARuntimeInfo, config: dict[str, str], slaves: int) -> Iterator[Finding]:
    """Yield the problems of a master with this number of registered slaves."""
    where, connected = str(target), len(info.ha_connection_info)
    in_sync = info.in_sync_slave_nums + 1
    minimum = _minimum(config)
    expected = max(slaves, _copies_expected(config))
    is_sync = config.get("brokerRole") == "SYNC_MASTER"
    if is_sync and in_sync < minimum:
        what = f"{in_sync} of at least {minimum} stores are in sync (minInSyncReplicas, with the master): sends fail"
        yield error(where, what, _START_SLAVE)
    elif is_sync and not connected:
        what = "brokerRole is SYNC_MASTER and no slave is connected: messages are on one machine only"
        yield warning(where, what, f"{_START_SLAVE} Until then producers may get SLAVE_NOT_AVAILABLE (11).")
    elif connected < expected:
        yield warning(where, f"{connected} of {expected} copies of its log are connected", _START_SLAVE)
    for copy in info.ha_connection_info:
        if not copy.in_sync or copy.diff > MAX_BYTES_BEHIND:
            what = f"the copy {copy.addr} lacks {copy.diff / 2**20:,.0f} MiB of the log"
            next_step = "Run this again. If the number grows, check the disk of the copy, and the network to it."
            yield warning(where, what, next_step)


def slave_findings(target: Target, info: HARuntimeInfo, received_ms: int) -> Iterator[Finding]:
    """Yield the problems of a slave that reported its state at `received_ms`, a time of this host."""
    where, client = str(target), info.ha_client_runtime_info
    if info.master:
        next_step = "Set brokerRole=SLAVE, and restart it."
        yield error(where, "the broker is registered as a slave and acts as a master: it copies nothing", next_step)
    elif not client.master_addr:
        next_step = "Start the master, or set haMasterAddress of this slave and restart it."
        yield warning(where, "the slave has no master to copy from", next_step)
    elif (silent_s := (received_ms - client.last_read_timestamp) // 1000) > SILENT_AFTER_S:
        since = f"for {silent_s} s" if client.last_read_timestamp > 0 else "since its start"
        next_step = "Check the log of both brokers, haListenPort of the master, and the firewall on the way."
        yield warning(where, f"the slave has received nothing from {client.master_addr} {since}", next_step)


def _minimum(config: dict[str, str]) -> int:
    """Return how many stores must be in sync for sends, with the master's; classic replication has no minimum."""
    has_minimum = config.get("haPeers", "") or config.get("enableControllerMode") == "true"
    return int(number_of(config.get("minInSyncReplicas")) or 1) if has_minimum else 1


def _copies_expected(config: dict[str, str]) -> int:
    """Return how many copies the settings name, besides the master: `totalReplicas`, or the nodes of `haPeers`."""
    peers = [peer for peer in re.split("[,;]", config.get("haPeers", "")) if peer.strip()]
    return max(int(number_of(config.get("totalReplicas")) or 1), len(peers)) - 1


CHECKS: Final = (Check("replication", replication),)
