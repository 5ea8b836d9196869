"""Defects of replication that `replication_cut` has to find: each is one step of the product that is left out."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import Send, Show, Synced, Written
from skylarkmq.broker.ha.core.follower import Follower
from skylarkmq.broker.ha.core.messages import Ack
from skylarkmq.broker.ha.link.copies import LinkCopies
from skylarkmq.broker.ha.link.links import Links
from skylarkmq.broker.ha.link.store_log import LeaderLog
from skylarkmq.broker.store.flush.sync_queue import SyncQueue
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.recovery import recovery
from skylarkmq.broker.store.recovery.recovery import Recovered


def _acknowledge_written(self: Follower, link: Any) -> None:
    local = self._local
    local.effects.append(Send(link.number, Ack(link.epoch, local.written, local.written)))


def _show_synced(self: Follower, _committed: int) -> None:
    if self._local.synced > self._shown:
        self._shown = self._local.synced
        self._local.effects.append(Show(self._local.synced))


def _common_end_by_length(_self: EpochHistory, end: int, _other: EpochHistory, other_end: int) -> int:
    return min(end, other_end)


def _attach_without_sync(self: LeaderLog, post: Callable[[Any], None], links: Links) -> None:
    def written(end: int) -> None:
        links.written()
        post(Written(end))
        post(Synced(end))

    _ATTACH(self, post, links)
    self._store.flush.on_growth(written, None)


def _load_and_show_all(self: MessageStore, *_: object) -> Recovered:
    return _LOAD(self)


_ATTACH: Final = LeaderLog.attach
_LOAD: Final = MessageStore.load

MUTANTS: Final[dict[str, tuple[Any, str, Any]]] = {
    "followers acknowledge before the sync": (Follower, "_acknowledge", _acknowledge_written),
    "the leader counts itself before the sync": (LeaderLog, "attach", _attach_without_sync),
    "producers get their response before the copies are synced": (SyncQueue, "await_copies", lambda self, copies: None),
    "followers show what is not committed": (Follower, "_show", _show_synced),
    "a recovery shows what is not committed": (MessageStore, "load", _load_and_show_all),
    "a follower keeps what its leader does not have": (EpochHistory, "common_end", _common_end_by_length),
    "a recovery keeps records that lack bytes": (recovery, "lacks_bytes", lambda record: False),
    "properties with zeros count before haSynced": (LinkCopies, "may_seem_torn", lambda self, end: None),
}


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """Run the product with one defect."""
    with ExitStack() as patched:
        owner, attribute, changed = MUTANTS[name]
        patched.enter_context(patch.object(owner, attribute, changed))
        yield
