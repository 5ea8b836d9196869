"""Transactions: the requests to brokers, and their times."""

import asyncio

import pytest

from skylarkmq import Message, MessageExt, NoRoute, TransactionProducer, TransactionState
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import refuse, until

SEND, END = RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION
HALF_ID = encode_offset_id(encode_host("127.0.0.1", 10911), 4711)
HALF = {"msgId": HALF_ID, "queueId": "1", "queueOffset": "42", "transactionId": "TX"}


async def unknown(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


def prepared(cluster: Cluster) -> None:
    cluster.broker.on(SEND, HALF)
    cluster.broker.on(END, None)


@pytest.mark.parametrize(("state", "code"), [(TransactionState.COMMIT, 8), (TransactionState.ROLLBACK, 12)])
async def test_the_local_transaction_decides(state: TransactionState, code: int) -> None:
    """It runs after the half message is stored; END_TRANSACTION has the offsets of the half message."""
    async with running_cluster() as cluster:
        prepared(cluster)
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=unknown) as producer:
            given: list[str] = []

            async def local(transaction_id: str) -> TransactionState:
                assert cluster.broker.requests_of(SEND)
                assert not cluster.broker.requests_of(END)
                given.append(transaction_id)
                return state

            result = await producer.send_in_transaction(Message("T", b"x", tags="a"), local)
            assert (result.state, result.transaction_id) == (state, given[0])
        sent = cluster.broker.requests_of(SEND)[0].header(SendMessageV2Header)
        properties = decode_properties(sent.properties)
        assert (sent.sys_flag, properties["TRAN_MSG"], properties["PGROUP"]) == (4, "true", "tx")
        header = cluster.broker.requests_of(END)[0].header(EndTransactionHeader)
        assert (header.producer_group, header.msg_id, header.transaction_id) == ("tx", properties["UNIQ_KEY"], "TX")
        assert (header.tran_state_table_offset, header.commit_log_offset) == (42, 4711)
        assert (header.commit_or_rollback, header.from_transaction_check) == (code, None)


async def test_an_unknown_state_is_not_sent() -> None:
    """UNKNOWN, or an exception, which reaches the caller: the broker checks later."""

    async def broken(_: str) -> TransactionState:
        raise ValueError("crashed")

    async def no_idea(_: str) -> TransactionState:
        return TransactionState.UNKNOWN

    async with running_cluster() as cluster:
        prepared(cluster)
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=unknown) as producer:
            assert (await producer.send_in_transaction(Message("T", b"x"), no_idea)).state is TransactionState.UNKNOWN
            with pytest.raises(ValueError, match="crashed"):
                await producer.send_in_transaction(Message("T", b"x"), broken)
        assert not cluster.broker.requests_of(END)


async def test_a_half_message_with_a_warning_status_is_rolled_back() -> None:
    """The local transaction does not run, nor does it when the send fails."""

    async def never(_: str) -> TransactionState:
        raise AssertionError("was run")

    async with running_cluster() as cluster:
        prepared(cluster)
        cluster.broker.on(SEND, lambda *_: RemotingCommand.response(ResponseCode.FLUSH_DISK_TIMEOUT, ext=HALF))
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=unknown) as producer:
            assert (await producer.send_in_transaction(Message("T", b"x"), never)).state is TransactionState.ROLLBACK
            assert cluster.broker.requests_of(END)[0].header(EndTransactionHeader).commit_or_rollback == 12
            with pytest.raises(NoRoute):
                await producer.send_in_transaction(Message("Nowhere", b"x"), never)


async def test_a_commit_that_fails_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The broker checks later."""

    async def local(_: str) -> TransactionState:
        return TransactionState.COMMIT

    async with running_cluster() as cluster:
        prepared(cluster)
        cluster.broker.on(END, refuse(ResponseCode.SYSTEM_ERROR))
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=unknown) as producer:
            assert (await producer.send_in_transaction(Message("T", b"x"), local)).state is TransactionState.COMMIT
    assert "end not sent" in caplog.text


async def test_a_check_gets_the_state_of_the_checker() -> None:
    """CHECK_TRANSACTION_STATE (39): by the group of the message, with the offsets of the check.

    If the checker fails or returns UNKNOWN, the producer sends nothing.
    """
    asked: list[tuple[str, bytes]] = []
    states = [TransactionState.UNKNOWN, TransactionState.COMMIT]

    async def checker(message: MessageExt) -> TransactionState:
        asked.append((message.msg_id, message.body))
        if len(asked) == 1:
            raise ValueError("no database")
        return states.pop(0)

    async with running_cluster() as cluster:
        prepared(cluster)
        cluster.broker.store("T", 0, b"half", "UNIQ_KEY\x01ID\x02PGROUP\x01tx\x02TRAN_MSG\x01true\x02")
        cluster.broker.store("T", 0, b"other", "UNIQ_KEY\x01ID\x02PGROUP\x01other\x02TRAN_MSG\x01true\x02")
        header = CheckTransactionHeader(
            tran_state_table_offset=7, commit_log_offset=99, msg_id="ID", transaction_id="ID", topic="T"
        )
        ours, others = cluster.broker.queues["T", 0]
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=checker) as producer:
            await producer.send(Message("T", b"x"))
            for record in (others, ours, ours, ours):
                request = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, header, record, oneway=True)
                cluster.broker.connections[-1].send(request)
            (end,) = await cluster.broker.wait_requests(END)
            await until(lambda: len(asked) == 3)
        told = end.header(EndTransactionHeader)
        assert (told.tran_state_table_offset, told.commit_log_offset, told.commit_or_rollback) == (7, 99, 8)
        assert (told.from_transaction_check, told.producer_group, told.msg_id) == ("true", "tx", "ID")
        assert asked == [("ID", b"half")] * 3


async def test_ends_do_not_wait_for_each_other() -> None:
    """Any number of transactions run at the same time."""
    gate = asyncio.Event()

    async def local(_: str) -> TransactionState:
        await gate.wait()
        return TransactionState.COMMIT

    async with running_cluster() as cluster:
        prepared(cluster)
        async with TransactionProducer("tx", namesrv=cluster.namesrv, checker=unknown) as producer:
            running = [
                asyncio.ensure_future(producer.send_in_transaction(Message("T", b"x"), local)) for _ in range(20)
            ]
            await cluster.broker.wait_requests(SEND, 20)
            gate.set()
            await asyncio.gather(*running)
        assert len(cluster.broker.requests_of(END)) == 20
