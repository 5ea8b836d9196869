"""`mqadmin ha`: the replication of broker groups, from GET_BROKER_HA_STATUS (907) of each registered broker.

A master reports its copies: the connections of slaves and followers. A slave reports its own connection. Both views
are shown, because a slave whose connection is broken is missing in the view of its master.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated

from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import CommandFailed, exit_code_of, not_found
from skylarkmq.clients.mqadmin.people.broker_state import BrokerPlace, places_of
from skylarkmq.clients.mqadmin.people.filters import ClusterOption
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, show, utc_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.clients.terminal.printed_output import Summary, counted
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo

COMMANDS = Commands()


class ReplicaCopy(Summary, frozen=True, kw_only=True):
    """A copy that is connected to its master."""

    broker: Annotated[str, Meta(description="name of the broker")]
    address: Annotated[str, Meta(description="host:port of the connection")]
    in_sync: Annotated[bool, Meta(description="whether the master counts it as in sync")]
    acknowledged: Annotated[int, Meta(description="end of what it has acknowledged, in bytes of the log")]
    lag_bytes: Annotated[int, Meta(description="bytes of the log that it has not acknowledged")]
    bytes_per_second: Annotated[int, Meta(description="bytes that the master sends to it per second")]


class ReplicaMaster(Summary, frozen=True, kw_only=True):
    """The master of a broker. Numbers are null if it does not report them."""

    place: Annotated[BrokerPlace, Meta(description="its name and address")]
    log_end: Annotated[int | None, Meta(description="end of its log, in bytes")]
    in_sync: Annotated[int | None, Meta(description="copies in sync, without the master itself")]
    copies: Annotated[list[ReplicaCopy], Meta(description="the connected copies, by address")]
    problem: Annotated[str | None, Meta(description="why it has no state; null: it reports one")]


class ReplicaSlave(Summary, frozen=True, kw_only=True):
    """A registered slave or follower. Members are null if it does not report them."""

    place: Annotated[BrokerPlace, Meta(description="its name and address")]
    master: Annotated[str | None, Meta(description="host:port from which it copies the log; null: it has none")]
    log_end: Annotated[int | None, Meta(description="end of its log, in bytes")]
    bytes_per_second: Annotated[int | None, Meta(description="bytes that it receives per second")]
    last_read: Annotated[str | None, Meta(description="when it last received something, UTC")]
    problem: Annotated[str | None, Meta(description="why it has no state; null: it reports one")]


class ReplicationReport(Result, frozen=True, kw_only=True):
    """The replication of all broker groups."""

    masters: Annotated[list[ReplicaMaster], Meta(description="by name")]
    slaves: Annotated[list[ReplicaSlave], Meta(description="by name and id")]

    def tables(self) -> Iterator[Rows]:
        """Yield the masters, their copies, the slaves, and the brokers that report nothing."""
        masters = [
            (its.place.name, its.place.address, its.log_end, None if its.problem else len(its.copies), its.in_sync)
            for its in self.masters
        ]
        yield Rows(
            "Masters", ("Broker", "Address", "Log end", "Copies", "In sync"), masters, "No master is registered."
        )
        copies = [
            (
                its.broker,
                its.address,
                "in sync" if its.in_sync else "behind",
                its.acknowledged,
                its.lag_bytes,
                its.bytes_per_second,
            )
            for master in self.masters
            for its in master.copies
        ]
        copy_columns = ("Broker", "Copy", "State", "Acknowledged", "Lag bytes", "Bytes/s")
        yield Rows("Copies", copy_columns, copies, "No copy is connected.")
        slaves = [
            (
                its.place.name,
                str(its.place.id),
                its.place.address,
                its.master,
                its.log_end,
                its.bytes_per_second,
                its.last_read,
            )
            for its in self.slaves
        ]
        slave_columns = ("Broker", "Id", "Address", "Copies from", "Log end", "Bytes/s", "Last read (UTC)")
        yield Rows("Slaves", slave_columns, slaves)
        problems = [(its.place.address, its.problem) for its in self.masters if its.problem]
        problems += [(its.place.address, its.problem) for its in self.slaves if its.problem]
        yield Rows("Problems", ("Address", "Cause"), problems)


@COMMANDS.add(
    "status",
    "Show masters, their copies and the lag of each copy.",
    "mqadmin ha status",
    "mqadmin ha status --watch",
    "mqadmin ha status --json",
)
async def status(admin: Admin, cluster: ClusterOption = None, as_json: Json = False, watch: Watch = None) -> None:
    """Print the replication of each group. CommandFailed if a broker does not report it."""
    failed: dict[str, int] = {}

    async def read() -> ReplicationReport:
        places = await places_of(admin, cluster)
        if not places:
            raise not_found("no broker is registered. Check that one runs, and the name server of its settings.")
        failed.clear()
        states = await gathered([partial(_state, admin, place) for place in places])
        found = list(zip(places, states, strict=True))
        failed.update({its.address: exit_code_of(state) for its, state in found if isinstance(state, ClientError)})
        return ReplicationReport(
            masters=[_master(place, state) for place, state in found if place.id == MASTER],
            slaves=[_slave(place, state) for place, state in found if place.id != MASTER],
        )

    await show(read, as_json=as_json, watch=watch)
    if failed:
        text = f"{counted(len(failed), 'broker')} without a state of replication: {', '.join(failed)}. See Problems."
        raise CommandFailed(text, next(iter(failed.values())))


async def _state(admin: Admin, place: BrokerPlace) -> HARuntimeInfo | ClientError:
    try:
        return await admin.brokers.ha_status(place.address)
    except ClientError as error:
        return error


def _master(place: BrokerPlace, state: HARuntimeInfo | ClientError) -> ReplicaMaster:
    if isinstance(state, ClientError):
        return ReplicaMaster(place=place, log_end=None, in_sync=None, copies=[], problem=str(state))
    connections = sorted(state.ha_connection_info, key=lambda connection: connection.addr)
    return ReplicaMaster(
        place=place,
        log_end=state.master_commit_log_max_offset,
        in_sync=state.in_sync_slave_nums,
        copies=[_copy(place.name, connection) for connection in connections],
        problem=None,
    )


def _copy(broker: str, connection: HAConnectionInfo) -> ReplicaCopy:
    return ReplicaCopy(
        broker=broker,
        address=connection.addr,
        in_sync=connection.in_sync,
        acknowledged=connection.slave_ack_offset,
        lag_bytes=connection.diff,
        bytes_per_second=connection.transferred_byte_in_second,
    )


def _slave(place: BrokerPlace, state: HARuntimeInfo | ClientError) -> ReplicaSlave:
    problem = str(state) if isinstance(state, ClientError) else None
    info: HAClientInfo | None = None if isinstance(state, ClientError) else state.ha_client_runtime_info
    return ReplicaSlave(
        place=place,
        master=None if info is None else info.master_addr,
        log_end=None if info is None else info.max_offset,
        bytes_per_second=None if info is None else info.transferred_byte_in_second,
        last_read=None if info is None else utc_text(info.last_read_timestamp),
        problem=problem,
    )
