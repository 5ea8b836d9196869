"""Comparison with responses of a real 4.9.8 broker to hand-made requests for which 5.3.3 responds the same.

Its topics had other traffic, so offsets differ; codes, remarks, and the names of ext fields do not. Where 5.3.3 adds
fields, ours has more than 4.9.8.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import (
    ConsumerGroupHeader,
    QueryConsumerOffsetHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from skylarkmq.protocol.headers.queue import QueueHeader, SearchOffsetHeader, ViewMessageHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat, pull
from tests.harness.golden import responses

OLD_FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
STORED = 3

ASKED: dict[str, Callable[[], RemotingCommand]] = {
    "pull group never subscribed": lambda: pull(consumer_group="other", sys_flag=0),
    "heartbeat": lambda: heartbeat(consumer()),
    "consumer list": lambda: of(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(GROUP)),
    "consumer list none": lambda: of(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader("nobody")),
    "query offset new group, min=0": lambda: of(
        RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader("new", TOPIC, 0)
    ),
    "update offset": lambda: of(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, 7)),
    "pull found": lambda: pull(max_msg_nums=2),
    "pull maxMsgNums=0": lambda: pull(max_msg_nums=0),
    "pull offset too big": lambda: pull(queue_offset=10_000_000),
    "pull offset -5": lambda: pull(queue_offset=-5),
    "max offset": lambda: of(RequestCode.GET_MAX_OFFSET, QueueHeader(TOPIC, 0)),
    "pull at max no suspend": lambda: pull(queue_offset=STORED),
    "pull no topic": lambda: pull(topic="NoSuch"),
    "pull tag mismatch": lambda: pull(subscription="none"),
    "search ts 0": lambda: of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetHeader(TOPIC, 0, 0)),
    "earliest": lambda: of(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader(TOPIC, 0)),
    "view msg off 0": lambda: of(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(0)),
    "view msg bad off": lambda: of(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(123)),
    "unregister": lambda: of(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader("c1", consumer_group=GROUP)),
    "broker unknown code": lambda: RemotingCommand.request(9999),
}


def of(code: int, header: object) -> RemotingCommand:
    return RemotingCommand.request(code, header)  # type: ignore[arg-type] # any of the headers above


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        it.put(*[b"x"] * STORED)
        yield it


@pytest.mark.parametrize("asked", ASKED)
async def test_our_response_equals_that_of_the_real_broker(parts: BrokerParts, asked: str) -> None:
    """The same code, remark and ext fields, and a body where it has one."""
    golden = responses()[asked]
    expected = msgspec.json.decode(golden["rawHeader"])
    peer = parts.peer()
    peer.call(heartbeat(consumer()))
    response = peer.call(ASKED[asked]())
    assert response.code == expected["code"]
    assert (response.remark or "") == expected.get("remark", "").replace(OLD_FAQ, FAQ)
    assert response.ext_fields().keys() >= expected.get("extFields", {}).keys()
    assert bool(response.body) == bool(golden["bodyLen"])
