"""A broker as a node of a replication link whose leader an operator chose: wires store, core, links and files.

    load       the store, with nothing visible above the committed mark; then the node's state, from its files
    start      the core runs; a leader waits until its epoch record is written
    stop       links end

A leader takes messages once its epoch record is committed, and as long as enough copies are linked. Otherwise the store
is blocked: sends get SERVICE_NOT_AVAILABLE (14) at once, pulls go on. `/readyz` and the log have the reason.

A node whose disk failed gets a new store id and ends: its store may lack bytes that it acknowledged, so it no longer
counts as the copy that it was. The daemon exits, and the supervisor of a follower starts it again. A leader with a new
store is not in the set any more, so an operator has to let another node lead. A node whose disk is full keeps its
store, and restarts once there is room (broker/ha/link/full_disk.py).
"""

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Final

import msgspec

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import HaState, Restart, Stop
from skylarkmq.broker.ha.core.follower import Follower
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.leader import CopyProgress, Leader
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.core.record import Member as RecordMember
from skylarkmq.broker.ha.link.copies import LinkCopies
from skylarkmq.broker.ha.link.full_disk import RestartWithRoom
from skylarkmq.broker.ha.link.links import Links, LinkSettings
from skylarkmq.broker.ha.link.runner import Runner
from skylarkmq.broker.ha.link.state_files import FollowerFiles, StateFiles
from skylarkmq.broker.ha.link.static_decisions import (
    FollowerDecisions,
    LeaderDecisions,
    Revised,
    load_revised,
    problem_of_leader,
    random_skips,
)
from skylarkmq.broker.ha.link.store_log import FollowerLog, LeaderLog, StoreBytes
from skylarkmq.broker.ha.link.threads import DiskCalls
from skylarkmq.broker.ha.status import CopyState, LeaderStatus, MemberStatus, ReplicationStatus, Role
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError, refused_by_disk
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.recovery.recovery import Recovered

INCARNATION_BYTES: Final = 8
STORE_ID_BYTES: Final = 16

log = logging.getLogger(__name__)


class LinkMember:
    """One node. `ended` is called once, when the daemon has to end; `now_ms` is Unix time."""

    def __init__(
        self,
        config: ReplicationConfig,
        store_config: StoreConfig,
        group: str,
        store: MessageStore,
        ended: Callable[[DaemonEnded], None],
        now_ms: Callable[[], int],
        *,
        server_tls: ServerTls,
        client_tls: ReloadingContext | None,
        disk: Disk | None = None,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._group = group
        self._store = store
        root = Path(store_config.store_path_root_dir)
        self._ended = ended
        self._restart = RestartWithRoom(root, store_config.mapped_file_size_commit_log, ended, disk or Disk())
        self._now_ms = now_ms
        files = StateFiles if config.leads else FollowerFiles
        self._files = files(root, disk)
        self._threads = ThreadPoolExecutor(1, "skylark-ha-files")
        self._disk = DiskCalls(self._threads)
        self._bytes = StoreBytes(store, store_config.mapped_file_size_commit_log)
        secret = config.ha_cluster_secret
        settings = LinkSettings(
            node=config.ha_node_id,
            peers={peer.name: peer for peer in config.ha_peers},
            segment_bytes=store_config.mapped_file_size_commit_log,
            secret=None if secret is None else secret.encode(),
            needs_certificate=secret is None and server_tls.verifies_clients,
            catch_up_bytes_per_s=config.ha_catch_up_bytes_per_second,
        )
        self.links = Links(settings, self._bytes, self._committed, server_tls=server_tls, client_tls=client_tls)
        self.copies: LinkCopies | None = None
        if config.broker_role is BrokerRole.SYNC_MASTER:
            self.copies = LinkCopies(config.slave_timeout, 0, self._keep_synced)
            store.flush.replicate(self.copies)
        self._runner: Runner | None = None
        self._log: LeaderLog | FollowerLog | None = None
        self._blocked = ""
        self._behind_since: dict[str, float] = {}  # by node: since when a copy has lacked bytes

    def __repr__(self) -> str:
        return f"<LinkMember {self._config.ha_node_id} {self._runner!r}>"

    # Life

    def load(self, should_stop: Callable[[], bool] | None = None) -> None:
        """Load the store, and make the node of the core.

        Raises StoreError, and DaemonEnded for a damaged file or a store that may not lead. The store is closed then.
        """
        with refused_by_disk("a file of the replication link cannot be read"):
            state, kept = self._files.state(), self._files.epochs()
            revised = load_revised(self._files.record) if self._config.leads else None
            if self._config.leads:
                synced = self._files.synced()
            else:
                synced = 0
                self._files.forget_synced()  # its log may be truncated, and extended anew
        if state is None:
            recovered = self._store.load(should_stop)
        elif self._has_led(revised):
            recovered = self._store.load(should_stop, state.committed, synced)
        else:
            renewed = HaState(state.promised, _new_store_id(), state.committed)
            recovered = self._store.load(should_stop, state.committed, 0, lambda: self._files.keep_state(renewed))
            if recovered.lacks_bytes:
                log.error("the log may lack an acknowledged message, the store has a new id end=%d", recovered.end)
                state = renewed
        try:
            with refused_by_disk("the replication link cannot be prepared"):
                self._make_node(recovered, state, kept, revised)
        except (StoreError, DaemonEnded):
            self._store.close()
            raise

    def _make_node(
        self, recovered: Recovered, state: HaState | None, kept: EpochHistory, revised: Revised | None
    ) -> None:
        """Make the node of the core from its files. Raises OSError, and DaemonEnded for a store that may not lead."""
        end = recovered.end
        epochs = self._bytes.epochs(kept)
        if epochs != kept:
            self._files.keep_epochs(epochs)
        state = self._current(state, recovered, is_founder=self._config.leads and not epochs.entries)
        node = self._config.ha_node_id
        if self._config.leads and (problem := problem_of_leader(revised, node, state.store_id, epochs)):
            raise DaemonEnded(problem, may_restart=False)
        me = Identity(
            group=self._group,
            node=node,
            incarnation=secrets.token_hex(INCARNATION_BYTES),
            founds=self._founding_record if self._config.leads else None,
            segment_bytes=self._store_config.mapped_file_size_commit_log,
            has_static_leader=True,
        )
        self._node = Node(me, state, Log(self._store.min_physical_offset, end, epochs), _now())
        log.info(
            "node loaded node=%s store_id=%s promised=%d committed=%d end=%d epochs=%d last=%d",
            node,
            state.store_id,
            state.promised,
            state.committed,
            end,
            len(epochs.entries),
            epochs.last,
        )

    def close(self) -> None:
        """Close the store after a load that was called off."""
        self._store.close()

    def _current(self, state: HaState | None, recovered: Recovered, *, is_founder: bool) -> HaState:
        """Return the state of this start, which is on the disk."""
        end = recovered.end
        if state is not None and end >= state.committed:
            return state
        if state is None:
            # A founder acknowledged its messages alone: they are committed.
            current = HaState(0, _new_store_id(), end if is_founder else 0)
        else:
            log.error(
                "the log lacks acknowledged bytes, the store gets a new id end=%d committed=%d reason=%s",
                end,
                state.committed,
                recovered.reason,
            )
            current = HaState(state.promised, _new_store_id(), min(end, state.committed))
        self._files.keep_state(current)
        return current

    def _has_led(self, revised: Revised | None) -> bool:
        """Return whether this node led the last term, and waited for copies: a record that seems torn is torn then.

        What it received as a follower it synced at the start of its first term. Records that could seem torn lie below
        `haSynced` (`LinkCopies`).
        """
        is_own_term = revised is not None and revised.record.leader == self._config.ha_node_id
        return is_own_term and self._config.broker_role is BrokerRole.SYNC_MASTER

    def start(self) -> None:
        """Run the node. The store is started."""
        store, replica = self._store, self._store.replica
        replicated: LeaderLog | FollowerLog
        if replica is None:
            host, node = self._store_config.store_host, self._config.ha_node_id
            replicated = LeaderLog(store, node, host, self.copies, self._now_ms)
        else:
            replicated = FollowerLog(replica, self._bytes, store)
        stepped = (lambda: None) if self.copies is None else self.copies.settle
        runner = Runner(self._node, replicated, self._files, self._disk, self.links, self._end, stepped=stepped)
        self.links.post, self.links.copy = runner.post, runner.copy
        if self._config.leads:
            runner.decisions = LeaderDecisions(
                self._config.ha_node_id,
                self._files.record,
                self._disk,
                runner.post,
                minimum=self._config.min_in_sync_replicas,
                acks=self._acks,
                skipped=random_skips(secrets.randbelow),
            )
        else:
            leader = self._config.ha_peers[0].name
            runner.decisions = FollowerDecisions(leader, self._config.min_in_sync_replicas, runner.post)
        self._log, self._runner = replicated, runner
        replicated.attach(runner.post, self.links)
        runner.start()

    async def begun(self) -> None:
        """Wait until this node follows, or leads and has written its epoch record."""
        if isinstance(self._log, LeaderLog):
            await self._log.begun.wait()
            self._block()

    def step(self) -> None:
        """Run what is due, about every 100 ms."""
        self._restart.step()
        if self._log is not None and self._runner is not None:
            self._log.step(self._runner.post)
            self._block()
            self._note_lags()

    @property
    def is_connected(self) -> bool:
        """Whether this follower copies the leader's log."""
        role = self._node.role
        return isinstance(role, Follower) and role.leader is not None

    def stop(self) -> None:
        """End all links, and write no more."""
        if self._runner is not None:
            self._runner.stop()
        self.links.stop()
        self._threads.shutdown()

    def _keep_synced(self, end: int, then: Callable[[OSError | None], None]) -> None:
        self._disk.run(lambda: self._files.keep_synced(end), then)

    def _end(self, why: Restart | Stop) -> None:
        self.links.stop()
        if isinstance(why, Stop):
            log.critical("replication stops, an operator has to act reason=%s", why.reason)
            self._ended(DaemonEnded(f"replication stopped: {why.reason}", may_restart=False))
            return
        log.critical("the store has to be restarted reason=%s new_store=%s", why.reason, why.new_store)
        restart = DaemonEnded(f"the store has to be restarted: {why.reason}", may_restart=True)
        if not why.new_store:
            self._restart.end(restart)
        elif problem := self._renew_store_id():
            self._ended(DaemonEnded(f"{why.reason}: {problem}", may_restart=False))
        else:
            self._ended(restart)

    def _renew_store_id(self) -> str | None:
        """Give this store a new id, on the disk. Return what an operator has to do; None if a new start is enough."""
        local, new_id = self._node.local, _new_store_id()
        try:
            self._threads.shutdown()
            state = self._files.state()
            mark = min(local.synced, local.committed if state is None else state.committed)
            self._files.keep_state(HaState(local.promised, new_id, mark))
            revised = load_revised(self._files.record) if self._config.leads else None
        except OSError as error:
            return f"haState cannot be written ({error}): repair the disk, then start this node with an empty directory"
        except DaemonEnded as error:
            return str(error)
        if not self._config.leads:
            return None
        return problem_of_leader(revised, self._config.ha_node_id, new_id, local.epochs)

    # The group

    def _founding_record(self, store_id: str) -> GroupRecord:
        config = self._config
        return GroupRecord(
            epoch=0,
            leader=config.ha_node_id,
            in_sync=(store_id,),
            members={config.ha_node_id: RecordMember(store_id)},
            min=config.min_in_sync_replicas,
            acks=self._acks,
        )

    @property
    def _acks(self) -> str:
        return "all" if self._config.broker_role is BrokerRole.SYNC_MASTER else "leader"

    def _committed(self) -> int:
        return self._node.local.committed

    def _block(self) -> None:
        """Block the store of a leader that cannot commit, and unblock it when it can."""
        if not isinstance(self._log, LeaderLog):
            return
        reason = self.refusal() or ""
        if reason != self._blocked:
            self._blocked = reason
            self._store.leader_block.set(reason)

    def refusal(self) -> str | None:
        """Return why this leader takes no messages; None if it does, or follows."""
        role = self._node.role
        if problem := self._restart.problem:
            return problem
        if not isinstance(role, Leader):
            return "the term has not begun yet"
        if (reason := role.refusal()) is not None:
            return f"{reason}: start the other nodes of haPeers, or repair their links"
        if isinstance(self._log, LeaderLog) and not self._log.is_shown:
            return "the epoch record is not committed yet: start the other nodes of haPeers, or repair their links"
        minimum = self._config.min_in_sync_replicas
        # A linked follower outside of the set replaces a lost one within two seconds: sends wait for that.
        linked = 1 + sum(copy.is_heard for copy in role.copies(_now()))
        if self._config.broker_role is BrokerRole.SYNC_MASTER and linked < minimum:
            return f"{linked} of {minimum} synced copies are linked: start the other nodes, or repair their links"
        return None

    # Status

    def _note_lags(self) -> None:
        role, now, end = self._node.role, _now(), self._bytes.end
        if isinstance(role, Leader):
            complete = {copy.node for copy in role.copies(now) if copy.synced == end}
            for peer in self._config.ha_peers:
                if peer.name in complete:
                    self._behind_since.pop(peer.name, None)
                else:
                    self._behind_since.setdefault(peer.name, now)

    def status(self) -> ReplicationStatus:
        """Return the current state."""
        role, local = self._node.role, self._node.local
        record = self._node.decisions.record
        is_leader = self._config.leads
        here = ReplicationStatus(
            role=Role.LEADER if is_leader else Role.FOLLOWER,
            end=local.written,
            committed=local.committed,
            epoch=local.epochs.last,
            refused=dict(self.links.refused),
            blocked=self._restart.problem or self._blocked,
        )
        if isinstance(role, Leader) and record is not None:
            return msgspec.structs.replace(
                here,
                epoch=role.epoch,
                min_in_sync=record.min,
                in_sync=len(record.in_sync),
                members=self._members(role),
                commit_s=None if self.copies is None else self.copies.commit_s,
            )
        if is_leader:
            return here
        address = self._config.ha_peers[0].address
        return msgspec.structs.replace(here, leader=self._leader_status(address, is_connected=self.is_connected))

    def _leader_status(self, address: str, *, is_connected: bool) -> LeaderStatus:
        read_ms, write_ms = self.links.last_read_and_write_ms()
        return LeaderStatus(
            address=address,
            is_connected=is_connected,
            last_read_ms=read_ms,
            last_write_ms=write_ms,
            flushed=self._node.local.committed,
        )

    def _members(self, role: Leader) -> tuple[MemberStatus, ...]:
        copies = {copy.node: copy for copy in role.copies(_now())}
        others = [peer for peer in self._config.ha_peers if peer.name != self._config.ha_node_id]
        return tuple(self._member(peer.name, copies.get(peer.name)) for peer in others)

    def _member(self, node: str, copy: CopyProgress | None) -> MemberStatus:
        end, since = self._bytes.end, self._behind_since.get(node)
        acked = 0 if copy is None else copy.synced or 0
        state = CopyState.DISCONNECTED
        if copy is not None:
            state = CopyState.IN_SYNC if copy.is_in_sync else CopyState.BEHIND
        return MemberStatus(
            name=node,
            address="" if copy is None else self.links.address(copy.link),
            state=state,
            acked=acked,
            lag_bytes=max(0, end - acked),
            lag_ms=0 if since is None else int((_now() - since) * 1000),
            sent=0 if copy is None else self.links.sent(copy.link),
        )


class LinkedLog:
    """The log of a follower, for the part that copies the leader's tables (broker/ha/tables/following.py). The link
    runs from the start of the store to its end, and haPeers names the leader."""

    def __init__(self, member: LinkMember) -> None:
        self._member = member

    def __repr__(self) -> str:
        return f"<LinkedLog {self._member!r}>"

    @property
    def is_connected(self) -> bool:
        """Whether the leader's log is copied."""
        return self._member.is_connected

    def status(self) -> ReplicationStatus:
        """Return the current state, for operators."""
        return self._member.status()

    def copy_from(self, address: str | None) -> None:
        """Do nothing."""

    def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""


def _now() -> float:
    return clock_gettime(CLOCK_BOOTTIME)


def _new_store_id() -> str:
    return secrets.token_hex(STORE_ID_BYTES)
