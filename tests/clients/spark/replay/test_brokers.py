"""The requests of a replay, against our broker."""

import asyncio
from pathlib import Path

import pytest

from skylarkmq import Admin
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.spark.replay.brokers import Brokers
from skylarkmq.clients.spark.replay.journal import Stream
from skylarkmq.clients.spark.replay.queue_senders import Copy
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode
from tests.harness.daemon import running

pytestmark = pytest.mark.daemon


def test_a_topic_that_was_deleted_is_not_created_again(tmp_path: Path) -> None:
    """Although the broker creates topics at the first message, and the route of the topic is known."""

    async def run(namesrv: str) -> None:
        async with Admin(namesrv=namesrv) as admin, Client(namesrv) as client, Brokers(client, "g") as brokers:
            await admin.create_topic("T", 1)
            (queue,) = await brokers.queues("T")
            copy = Copy(Stream(MessageQueue("A", "b", 0), "T"), 0, None, 0, 0, b"x", b"")
            assert (await brokers.send(queue, [copy])).queue_offset == 0
            await admin.delete_topic("T")
            for copies in ([copy], [copy, copy]):
                with pytest.raises(BrokerError) as error:
                    await brokers.send(queue, copies)
                assert error.value.code == ResponseCode.TOPIC_NOT_EXIST
            with pytest.raises(NoRoute):
                await client.routes.reload("T")

    with running(directory=tmp_path) as daemon:
        asyncio.run(run(daemon.namesrv))
