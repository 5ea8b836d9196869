"""Locks of queues."""

import asyncio
from collections.abc import Callable, Collection

from skylarkmq.clients.connection.client import Client
from skylarkmq.clients.consuming.queue_locks import LOCK_LIFE_S, QueueLocks
from skylarkmq.clients.errors import ConnectionLost
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.cluster import running_cluster
from tests.clients.peer import PeerConnection, refuse, until

QUEUES = [MessageQueue("T", "broker-a", n) for n in range(2)]


async def nowhere(_: Collection[MessageQueue]) -> set[MessageQueue]:
    """No other member was ahead."""
    return set()


async def test_what_is_granted_is_held_until_it_grows_old() -> None:
    """A lock that cannot be renewed is no lock, before the broker forgets it; a renewed one is."""
    now_s = 0.0
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere, lambda: now_s)
        cluster.broker.locks[QUEUES[1]] = "somebody else"
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
        shorter = QueueLocks(client, "g", nowhere, lambda: now_s, life_s=2.0)
        await shorter.acquire(QUEUES)
        now_s += 2.0
        assert not shorter.holds(QUEUES[0])


async def test_a_refused_renewal_is_a_loss() -> None:
    """It is told which."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere)
        await locks.acquire(QUEUES)
        cluster.broker.locks[QUEUES[1]] = "somebody else"
        assert await locks.renew() == [QUEUES[1]]
        assert locks.held == QUEUES[:1]


async def test_released_locks_are_anybodys() -> None:
    """At the broker too, and nothing is asked for what was not held."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere)
        await locks.acquire(QUEUES[:1])
        await locks.release(QUEUES)
        assert cluster.broker.locks == {}
        await locks.release(QUEUES)
        assert len(cluster.broker.asked(RequestCode.UNLOCK_BATCH_MQ)) == 1


async def test_a_lock_ends_with_its_connection() -> None:
    """A broker that comes back knows no locks: what it had granted counts again when it has granted it again."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere)
        await locks.acquire(QUEUES)
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the connection's end")
        cluster.broker.locks[QUEUES[0]] = "who came back first"
        assert await locks.renew() == QUEUES[:1]
        assert [locks.holds(queue) for queue in QUEUES] == [False, True]


async def test_a_lock_that_is_granted_again_counts_where_nobody_was_ahead() -> None:
    """One whose queue another member read meanwhile is lost, but is the broker's to keep until it is released."""
    asked: list[set[MessageQueue]] = []

    async def overtaken(queues: Collection[MessageQueue]) -> set[MessageQueue]:
        asked.append(set(queues))
        return set(queues).intersection(QUEUES[:1])

    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", overtaken)
        await locks.acquire(QUEUES)
        assert await locks.renew() == []
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the connection's end")
        for _ in range(2):
            assert await locks.renew() == QUEUES[:1]
            assert [locks.holds(queue) for queue in QUEUES] == [False, True]
        assert asked == [set(), set(QUEUES), set(QUEUES[:1])]
        await locks.release(QUEUES[:1])
        assert list(cluster.broker.locks) == QUEUES[1:]


async def test_a_lock_that_is_granted_again_does_not_count_before_it_is_known_who_was_ahead() -> None:
    """What was refused at the same time is lost all the same."""
    answers = iter([ConnectionLost("gone again"), None])

    async def overtaken(_: Collection[MessageQueue]) -> set[MessageQueue]:
        if (error := next(answers)) is not None:
            raise error
        return set()

    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", overtaken)
        await locks.acquire(QUEUES)
        cluster.broker.hang_up()
        await until(lambda: not locks.holds(QUEUES[0]), "the connection's end")
        cluster.broker.locks[QUEUES[1]] = "who came back first"
        assert await locks.renew() == QUEUES[1:]
        assert (locks.held, locks.holds(QUEUES[0])) == (QUEUES[:1], False)
        assert await locks.renew() == []
        assert locks.holds(QUEUES[0])


async def test_what_is_released_while_it_is_renewed_is_not_kept() -> None:
    """Nobody would give it back any more, and no other member could ever have the queue."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere)
        await locks.acquire(QUEUES)
        answers: list[Callable[[], None]] = []
        lock = cluster.broker.handlers[RequestCode.LOCK_BATCH_MQ]

        def later(connection: PeerConnection, request: RemotingCommand) -> None:
            answer = lock(connection, request)
            assert isinstance(answer, RemotingCommand)
            answers.append(lambda: connection.send(answer.in_response_to(request)))

        cluster.broker.on(RequestCode.LOCK_BATCH_MQ, later)
        renewal = asyncio.create_task(locks.renew())
        await cluster.broker.wait_asked(RequestCode.LOCK_BATCH_MQ, 2)
        await locks.release(QUEUES[:1])
        answers.pop()()
        assert await renewal == []
        assert locks.held == QUEUES[1:]
        assert list(cluster.broker.locks) == QUEUES[1:]


async def test_a_leave_gives_back_what_was_being_asked_for() -> None:
    """The broker may have locked it, and its answer came too late for the one who asked."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        locks = QueueLocks(client, "g", nowhere)
        await locks.acquire(QUEUES[:1])
        lock = cluster.broker.handlers[RequestCode.LOCK_BATCH_MQ]
        cluster.broker.on(RequestCode.LOCK_BATCH_MQ, lambda *asked: lock(*asked) and None)
        asking = asyncio.create_task(locks.acquire(QUEUES[1:]))
        await cluster.broker.wait_asked(RequestCode.LOCK_BATCH_MQ, 2)
        asking.cancel()
        assert set(cluster.broker.locks) == set(QUEUES)
        await locks.release_all()
        assert (cluster.broker.locks, locks.held) == ({}, [])
