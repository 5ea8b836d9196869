"""Queue locks of an orderly member."""

import asyncio
from collections.abc import Callable, Collection

from skylarkmq.clients.sdk.base.errors import ConnectionLost
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.consuming.queue_locks import LOCK_LIFE_S, QueueLocks
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.cluster import running_cluster
from tests.clients.peer import PeerConnection, refuse, until

QUEUES = [MessageQueue("T", "broker-a", n) for n in range(2)]


async def never_overtaken(_: Collection[MessageQueue]) -> set[MessageQueue]:
    """Return the queues in which another member was faster: none."""
    return set()


async def test_a_granted_lock_is_valid_until_it_expires() -> None:
    """A lock that cannot be renewed becomes invalid before the broker drops it."""
    now_s = 0.0
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken, lambda: now_s)
        cluster.broker.locks[QUEUES[1]] = "another member"
        assert await locks.acquire(QUEUES) == QUEUES[:1]
        assert [locks.holds(queue) for queue in QUEUES] == [True, False]
        now_s = LOCK_LIFE_S
        assert not locks.holds(QUEUES[0])
        cluster.broker.on(RequestCode.LOCK_BATCH_MQ, refuse(ResponseCode.SYSTEM_ERROR))
        assert await locks.renew() == []
        assert not locks.holds(QUEUES[0])
        cluster.broker.handlers[RequestCode.LOCK_BATCH_MQ] = cluster.broker._lock
        assert await locks.renew() == []
        assert locks.holds(QUEUES[0])
        shorter = QueueLocks(client, "g", never_overtaken, lambda: now_s, life_s=2.0)
        await shorter.acquire(QUEUES)
        now_s += 2.0
        assert not shorter.holds(QUEUES[0])


async def test_a_lock_that_is_not_renewed_is_lost() -> None:
    """`renew` returns its queue."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken)
        await locks.acquire(QUEUES)
        cluster.broker.locks[QUEUES[1]] = "another member"
        assert await locks.renew() == [QUEUES[1]]
        assert locks.held == QUEUES[:1]


async def test_released_locks_are_free() -> None:
    """At the broker, too; queues without a lock cause no request."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken)
        await locks.acquire(QUEUES[:1])
        await locks.release(QUEUES)
        assert cluster.broker.locks == {}
        await locks.release(QUEUES)
        assert len(cluster.broker.requests_of(RequestCode.UNLOCK_BATCH_MQ)) == 1


async def test_a_lock_becomes_invalid_with_its_connection() -> None:
    """A restarted broker has no locks: the lock is valid again once the broker has granted it again."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken)
        await locks.acquire(QUEUES)
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the end of the connection")
        cluster.broker.locks[QUEUES[0]] = "another member"
        assert await locks.renew() == QUEUES[:1]
        assert [locks.holds(queue) for queue in QUEUES] == [False, True]


async def test_a_lock_that_is_granted_again_is_valid_unless_another_member_was_faster() -> None:
    """A queue that another member has read meanwhile is lost, and stays locked at the broker until it is released."""
    asked: list[set[MessageQueue]] = []

    async def overtaken(queues: Collection[MessageQueue]) -> set[MessageQueue]:
        asked.append(set(queues))
        return set(queues).intersection(QUEUES[:1])

    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", overtaken)
        await locks.acquire(QUEUES)
        assert await locks.renew() == []
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the end of the connection")
        for _ in range(2):
            assert await locks.renew() == QUEUES[:1]
            assert [locks.holds(queue) for queue in QUEUES] == [False, True]
        assert asked == [set(), set(QUEUES), set(QUEUES[:1])]
        await locks.release(QUEUES[:1])
        assert list(cluster.broker.locks) == QUEUES[1:]


async def test_a_lock_that_is_granted_again_is_invalid_until_the_offsets_are_known() -> None:
    """A lock that was refused at the same time is lost all the same."""
    responses = iter([ConnectionLost("gone again"), None])

    async def overtaken(_: Collection[MessageQueue]) -> set[MessageQueue]:
        if (error := next(responses)) is not None:
            raise error
        return set()

    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", overtaken)
        await locks.acquire(QUEUES)
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the end of the connection")
        cluster.broker.locks[QUEUES[1]] = "another member"
        assert await locks.renew() == QUEUES[1:]
        assert (locks.held, locks.holds(QUEUES[0])) == (QUEUES[:1], False)
        assert await locks.renew() == []
        assert locks.holds(QUEUES[0])


async def test_a_lock_that_is_released_during_its_renewal_is_not_kept() -> None:
    """It would never be released, and no other member could read the queue."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken)
        await locks.acquire(QUEUES)
        responses: list[Callable[[], None]] = []
        lock = cluster.broker.handlers[RequestCode.LOCK_BATCH_MQ]

        def later(connection: PeerConnection, request: RemotingCommand) -> None:
            response = lock(connection, request)
            assert isinstance(response, RemotingCommand)
            responses.append(lambda: connection.send(response.in_response_to(request)))

        cluster.broker.on(RequestCode.LOCK_BATCH_MQ, later)
        renewal = asyncio.create_task(locks.renew())
        await cluster.broker.wait_requests(RequestCode.LOCK_BATCH_MQ, 2)
        await locks.release(QUEUES[:1])
        responses.pop()()
        assert await renewal == []
        assert locks.held == QUEUES[1:]
        assert list(cluster.broker.locks) == QUEUES[1:]


async def test_leaving_releases_locks_whose_request_has_no_response_yet() -> None:
    """The broker may have granted them."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", never_overtaken)
        await locks.acquire(QUEUES[:1])
        lock = cluster.broker.handlers[RequestCode.LOCK_BATCH_MQ]
        cluster.broker.on(RequestCode.LOCK_BATCH_MQ, lambda *asked: lock(*asked) and None)
        asking = asyncio.create_task(locks.acquire(QUEUES[1:]))
        await cluster.broker.wait_requests(RequestCode.LOCK_BATCH_MQ, 2)
        asking.cancel()
        assert set(cluster.broker.locks) == set(QUEUES)
        await locks.release_all()
        assert (cluster.broker.locks, locks.held) == ({}, [])
