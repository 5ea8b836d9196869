"""Recall of messages before their time of delivery."""

from datetime import timedelta

import pytest

from skylarkmq import BrokerError, InvalidMessage, Message, Producer
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.headers.recall import RecallMessageHeader
from skylarkmq.protocol.recall_handle import RecallHandle
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse

HANDLE = RecallHandle("T", "broker-b", "1700000000001", "KEY").encode()


async def test_a_message_is_recalled_by_its_handle() -> None:
    """The request goes to its broker, with the group of the producer."""
    async with running_cluster(brokers=2) as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        for broker in cluster.brokers:
            broker.on(
                RequestCode.SEND_MESSAGE_V2, {"msgId": "0", "queueId": "0", "queueOffset": "0", "recallHandle": HANDLE}
            )
            broker.on(RequestCode.RECALL_MESSAGE, {"msgId": "KEY"})
        sent = await producer.send(Message("T", b"x"), delay=timedelta(minutes=1))
        assert sent.recall_handle == HANDLE
        assert await producer.recall("T", sent.recall_handle) == "KEY"
        (request,) = cluster.brokers[1].requests_of(RequestCode.RECALL_MESSAGE)
        header = request.header(RecallMessageHeader)
        assert (header.topic, header.recall_handle, header.producer_group) == ("T", HANDLE, "p")
        assert cluster.brokers[0].requests_of(RequestCode.RECALL_MESSAGE) == []


async def test_an_invalid_handle_is_not_sent() -> None:
    """The error explains where handles come from."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        with pytest.raises(InvalidMessage, match=r"SendResult\.recall_handle"):
            await producer.recall("T", "nonsense")
        with pytest.raises(InvalidMessage, match="of topic T, not of U"):
            await producer.recall("U", HANDLE)
        assert (await producer.send(Message("T", b"x"))).recall_handle is None


async def test_a_refusal_names_the_setting() -> None:
    """Brokers do not allow recalls by default."""
    async with running_cluster(brokers=2) as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        cluster.brokers[1].on(
            RequestCode.RECALL_MESSAGE, refuse(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        )
        with pytest.raises(BrokerError, match="operation is forbidden") as caught:
            await producer.recall("T", HANDLE)
        assert caught.value.code == ResponseCode.NO_PERMISSION
