"""Pull requests from a template, compared with encoded ones."""

import pytest

from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.consuming.pull_requests import PullRequests
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import MSGPACK, RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.msgpack_header import decode_general
from skylarkmq.protocol.serialize import encode_command

SUBSCRIPTIONS = [
    SubscriptionData(topic="T", sub_string="*", sub_version=1_795_224_552_508),
    SubscriptionData(topic="T", sub_string='100%d || "queueOffset":"9000000000000000001"', expression_type="TAG"),
]


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
@pytest.mark.parametrize("with_subscription", [False, True])
@pytest.mark.parametrize("commit_offset", [None, 1, 2**63 - 1])
def test_a_pull_from_the_template_equals_an_encoded_one(
    subscription: SubscriptionData, with_subscription: bool, commit_offset: int | None
) -> None:
    """Every byte, for all subscriptions, queues and offsets; in MessagePack every field."""
    queue = MessageQueue("%RETRY%größe", 'broker"%s', 7)
    pulls = PullRequests("g%", queue, subscription, ConsumerSettings(), with_subscription=with_subscription)
    for offset, opaque in ((0, 1), (2**62, 2**31 - 1)):
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, pulls.header(offset, commit_offset))
        command.opaque = opaque
        assert pulls.frame(offset, commit_offset, opaque) == encode_command(command)
        (frame,) = FrameDecoder().feed(memoryview(pulls.frame(offset, commit_offset, opaque, MSGPACK)))
        found = decode_general(frame[1])
        assert (frame[0], found.code, found.flag, found.opaque) == (MSGPACK, command.code, 0, opaque)
        assert (found.version, found.language_code, bytes(frame[2])) == (command.version, command.language_code, b"")
        assert found.ext_fields() == command.ext_fields()
