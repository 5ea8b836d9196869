"""Queue locks over the wire: requests of clients, and the responses."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.processors.consumer.queue_locks import QueueLockProcessor
from skylarkmq.protocol.bodies.locks import LockedQueues
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import BrokerParts, broker_parts
from tests.harness.golden import responses, transcripts

Q0 = MessageQueue("T", "b", 0)


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        it.serve(QueueLockProcessor(QueueLocks(60_000), it.topics, it.clock).handlers())
        yield it


def request(code: int, client_id: str, *queues: MessageQueue, group: str = "G") -> RemotingCommand:
    body = {"clientId": client_id, "consumerGroup": group, "mqSet": [msgspec.to_builtins(queue) for queue in queues]}
    return RemotingCommand.request(code, body=msgspec.json.encode(body))


def lock(client_id: str, *queues: MessageQueue) -> RemotingCommand:
    return request(RequestCode.LOCK_BATCH_MQ, client_id, *queues)


async def test_locks_are_granted_and_released(parts: BrokerParts) -> None:
    """LOCK_BATCH_MQ (41) lists the client's locks; UNLOCK_BATCH_MQ (42) has no body; a lock moves when released or
    expired."""
    peer = parts.peer()
    response = peer.call(lock("one", Q0))
    assert (response.code, response.remark) == (0, None)
    assert bytes(response.body) == b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    assert bytes(peer.call(lock("two", Q0)).body) == b'{"lockOKMQSet":[]}'
    freed = peer.call(request(RequestCode.UNLOCK_BATCH_MQ, "one", Q0))
    assert (freed.code, bytes(freed.body)) == (0, b"")
    assert LockedQueues.decode(peer.call(lock("two", Q0)).body).lock_ok_mq_set == [Q0]
    parts.clock.now_ms += 60_001
    assert LockedQueues.decode(peer.call(lock("one", Q0)).body).lock_ok_mq_set == [Q0]


async def test_a_lost_connection_keeps_its_locks(parts: BrokerParts) -> None:
    """Its client may still process messages; the same client id gets them again on another connection."""
    first, second = parts.peer(), parts.peer(4322)
    first.call(lock("one", Q0))
    first.disconnect()
    assert bytes(second.call(lock("two", Q0)).body) == b'{"lockOKMQSet":[]}'
    assert LockedQueues.decode(second.call(lock("one", Q0)).body).lock_ok_mq_set == [Q0]


async def test_requests_of_javas_orderly_client_are_served(parts: BrokerParts) -> None:
    """Every captured request gets the captured response, code and body."""
    parts.topics.update(TopicConfig("WireTopic", 8, 8))
    parts.topics.update(TopicConfig("%RETRY%wire-orderly", 1, 1))
    frames = [frame for frame in transcripts() if "LOCK_BATCH_MQ" in frame.name]
    assert len(frames) >= 4
    replies = {frame.header["opaque"]: frame for frame in frames if frame.header["flag"] & 1}
    for frame in frames:
        if not frame.header["flag"] & 1:
            response = parts.peer().call(RemotingCommand.request(frame.header["code"], body=frame.body))
            assert response.code == 0
            assert bytes(response.body) == replies[frame.header["opaque"]].body


@pytest.mark.parametrize("asked", ["lock", "lock by other", "unlock"])
async def test_the_response_equals_that_of_a_real_broker(parts: BrokerParts, asked: str) -> None:
    """SUCCESS (0) and no remark, whether the queue was free or not."""
    expected = msgspec.json.decode(responses()[asked]["rawHeader"])
    code = RequestCode.UNLOCK_BATCH_MQ if asked == "unlock" else RequestCode.LOCK_BATCH_MQ
    response = parts.peer().call(request(code, "one", Q0))
    assert (response.code, response.remark) == (expected["code"], expected.get("remark"))


@pytest.mark.parametrize(("topic", "queue_id"), [("T", 4), ("T", -1), ("T", 2**31 - 1), ("Unknown", 0)])
async def test_an_unknown_queue_cannot_be_locked(parts: BrokerParts, topic: str, queue_id: int) -> None:
    """It is not stored, and the other queues of the request are locked."""
    response = parts.peer().call(lock("one", MessageQueue(topic, "b", queue_id), Q0))
    assert LockedQueues.decode(response.body).lock_ok_mq_set == [Q0]


async def test_a_request_without_a_body_is_an_error(parts: BrokerParts) -> None:
    """SYSTEM_ERROR (1)."""
    assert parts.peer().call(RemotingCommand.request(RequestCode.LOCK_BATCH_MQ)).code == 1
