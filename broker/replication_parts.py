"""The parts of a broker that replicate its log, by its role.

A master with the port for slaves (`ReplicationConfig.serves_slaves`) has a `ClassicMaster` behind a `HaServer`. Without
it the store is not replicated, and nothing here runs.
"""

from collections import Counter
from typing import NamedTuple

from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.ha.classic.master import ClassicMaster
from skylarkmq.broker.ha.server import HaServer
from skylarkmq.broker.store.message_store import MessageStore


class MasterParts(NamedTuple):
    """The parts of a master with slaves."""

    master: ClassicMaster
    server: HaServer


def master_parts(config: DaemonConfig, store: MessageStore) -> MasterParts | None:
    """Return the parts of a master, connected to its store before the first put; None if no slaves are served."""
    replication = config.replication
    if not replication.serves_slaves:
        return None
    refused: Counter[str] = Counter()
    master = ClassicMaster(replication, store, config.store.mapped_file_size_commit_log, refused)
    store.on_log_growth(master.grown, None)
    if master.copies is not None:
        store.replicate(master.copies)
    return MasterParts(master, HaServer(replication, master, refused=refused))
