"""The queue locks of an orderly group: a member reads only queues that their broker has locked for it.

    acquire (LOCK_BATCH_MQ, 41) before a queue is read; renew (41) every `lock_renewal_s`; release (UNLOCK_BATCH_MQ, 42)
    after its last message

A broker drops a lock that is not renewed for 60 s, and another member may then lock the queue. So a lock is valid here
for half as long (`lock_life_s`), counted from the request that was granted. A lock also becomes invalid when the
connection on which it was granted ends: a restarted broker has no locks, and may give the queue to another member.
While a lock is invalid, no message of its queue is handled and no offset committed, until it is renewed.

A lock that the broker refuses to renew is lost. So is an invalid lock that is granted again if another member has
committed more in the meantime: a commit of this member would move the group's offset back. Source:
docs/reference/wire.md, "Queue locks".
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.base.errors import ClientError, reading_response
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.connection import Connection
from skylarkmq.protocol.bodies.locks import LockedQueues, LockRequest
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand

LOCK_LIFE_S: Final = 30.0

log = logging.getLogger(__name__)


class Lock(NamedTuple):
    """When the lock was last requested, and the connection on which it was granted."""

    asked_s: float
    connection: Connection


class QueueLocks:
    """The locks of one member, each valid for `life_s` after its request. `overtaken` returns the queues in which
    another member has committed more than this member has acknowledged (ClientError: not known yet). `clock` returns
    seconds."""

    def __init__(
        self,
        client: Client,
        group: str,
        overtaken: Callable[[Collection[MessageQueue]], Awaitable[set[MessageQueue]]],
        clock: Callable[[], float] = time.monotonic,
        life_s: float = LOCK_LIFE_S,
    ) -> None:
        self._client = client
        self._group = group
        self._overtaken = overtaken
        self._clock = clock
        self._life_s = life_s
        self._locks: dict[MessageQueue, Lock] = {}
        self._unanswered: set[MessageQueue] = set()  # requested without a response, and possibly locked
        self.on_stale: Callable[[], None] = lambda: None
        """Called when a message waits for the renewal of a lock."""

    def __repr__(self) -> str:
        return f"<QueueLocks {self._group} {len(self._locks)} held>"

    @property
    def held(self) -> list[MessageQueue]:
        """The queues that brokers have locked for this member, as of their responses."""
        return sorted(self._locks)

    def holds(self, queue: MessageQueue) -> bool:
        """Return whether a message of this queue may be handled, and its offset committed."""
        lock = self._locks.get(queue)
        return lock is not None and not lock.connection.closed and self._clock() - lock.asked_s < self._life_s

    def granted_ms(self, queue: MessageQueue) -> int:
        """Return when the lock of a queue was last granted (Unix, ms); 0 without a lock."""
        lock = self._locks.get(queue)
        return 0 if lock is None else int((time.time() - (self._clock() - lock.asked_s)) * 1000)

    async def acquire(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues. Return those that are locked for this member now, sorted."""
        granted = await self._each_broker(queues, self._lock)
        return sorted(queue for queues in granted for queue in queues)

    async def renew(self) -> list[MessageQueue]:
        """Renew all locks. Return the queues whose lock was lost: they are to be released and acquired again. The locks
        of a broker that does not respond stay until they expire."""
        lost = await self._each_broker(self._locks, self._renew)
        return sorted(queue for queues in lost for queue in queues)

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues. If a broker cannot be reached, its locks expire there."""
        mine = [queue for queue in queues if self._locks.pop(queue, None) is not None]
        await self._each_broker(mine, self._unlock)

    async def release_all(self) -> None:
        """Unlock all queues, also those that a broker may have locked although its response was lost."""
        queues = self._unanswered.union(self._locks)
        self._locks.clear()
        self._unanswered.clear()
        await self._each_broker(sorted(queues), self._unlock)

    async def _each_broker(
        self, queues: Iterable[MessageQueue], call: Callable[[str, list[MessageQueue]], Awaitable[list[MessageQueue]]]
    ) -> list[list[MessageQueue]]:
        by_broker: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker_name].append(queue)
        return await asyncio.gather(*(call(name, of_broker) for name, of_broker in by_broker.items()))

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Lock the queues of one broker. Return those that were granted."""
        locked, lock = await self._request_locks(broker_name, queues, lambda _: True)
        granted = [queue for queue in queues if queue in locked]
        if lock is not None:
            self._locks |= dict.fromkeys(granted, lock)
        return granted

    async def _renew(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Renew the locks of one broker. Return the queues whose lock was lost.

        A queue that is released meanwhile must neither be locked again nor be kept: it would never be unlocked. A queue
        in which another member was faster stays locked until it is released.
        """
        locked, lock = await self._request_locks(broker_name, queues, self._locks.__contains__)
        if lock is None:
            return []
        lapsed = {queue for queue in locked.intersection(self._locks) if not self.holds(queue)}
        counted, overtaken = locked - lapsed, set[MessageQueue]()
        try:
            overtaken = await self._overtaken(lapsed)
            counted |= lapsed - overtaken
        except ClientError as error:
            log.warning("offsets not known, trying again broker=%s queues=%d error=%s", broker_name, len(lapsed), error)
        held = [queue for queue in queues if queue in self._locks]
        self._locks |= {queue: lock for queue in held if queue in counted}
        refused = [queue for queue in held if queue not in locked]
        for queue in refused:
            del self._locks[queue]
        return [*refused, *overtaken]

    async def _request_locks(
        self, broker_name: str, queues: list[MessageQueue], is_wanted: Callable[[MessageQueue], bool]
    ) -> tuple[set[MessageQueue], Lock | None]:
        """Request the locks of those queues that are wanted when the request is sent. Return the locked queues; with
        None if the broker did not respond."""
        try:
            connection = await self._client.brokers.get(await self._address(queues))
            now_s = self._clock()
            if not (wanted := [queue for queue in queues if is_wanted(queue)]):
                return set(), None
            self._unanswered.update(wanted)
            response = await self._request(RequestCode.LOCK_BATCH_MQ, wanted)
            self._unanswered.difference_update(wanted)
            with reading_response(RequestCode.LOCK_BATCH_MQ, f"broker {broker_name}"):
                locked = LockedQueues.decode(response.body).lock_ok_mq_set
        except ClientError as error:
            log.warning("queues not locked, trying again broker=%s queues=%d error=%s", broker_name, len(queues), error)
            return set(), None
        return set(wanted).intersection(locked), Lock(now_s, connection)

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        try:
            await self._request(RequestCode.UNLOCK_BATCH_MQ, queues)
        except ClientError as error:
            log.info("queues not unlocked, their locks expire broker=%s error=%s", broker_name, error)
        return []

    async def _request(self, code: int, queues: list[MessageQueue]) -> RemotingCommand:
        request = LockRequest(self._client.client_id, self._group, queues)
        address = await self._address(queues)
        return await self._client.request(address, code, body=request.encode(), topic=queues[0].topic)

    async def _address(self, queues: list[MessageQueue]) -> str:
        route = await self._client.routes.find(queues[0].topic)
        return route.address(queues[0].broker_name)
