"""Signed sends and pulls of a whole broker behind a gate, in one write: what is stored, and what is refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.gate import MAX_RUN, Gate
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.app.in_process import SMALL, free_ports
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import LOOPBACK, Machine, load_broker
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import QueueHeader
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.headers.topic import CreateTopicHeader
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.signature import SigningKey, signed_parts
from tests.harness.raw_peer import RawPeer

GOOD: Final = Credentials("skylark", "12345678")
BAD: Final = Credentials("skylark", "87654321")
NONE: Final = None
TOPIC: Final = "Signed"


class OneAccount:
    """A control that verifies the signatures of one account."""

    checks_data = True

    def __init__(self) -> None:
        self._key = SigningKey(GOOD.secret_key)
        self._caller = Caller(GOOD.access_key, Proof.SIGNATURE)
        self.checked = 0

    def check(self, _source: RequestSource, command: RemotingCommand, _requirement: Requirement) -> Caller:
        self.checked += 1
        signed = signed_parts(command)
        if signed is None or signed.access_key != GOOD.access_key or not self._key.has_signed(signed, command.body):
            raise RequestError(ResponseCode.NO_PERMISSION, "check signature failed.")
        return self._caller


class Guarded(NamedTuple):
    """A running broker and its control."""

    broker: Broker
    port: int
    control: OneAccount


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    port, namesrv_port = free_ports(2)
    own = {"listenPort": port, "embeddedNamesrvPort": namesrv_port, "storePathRootDir": tmp_path / "store"}
    given = [Given(key, str(value), "test") for key, value in {**SMALL, **own}.items()]
    machine = Machine(host_name="broker-a", address=LOOPBACK, home=tmp_path, resolve=lambda host: host)
    broker = Broker(load_broker(given, machine).config, alone=False)
    control = OneAccount()
    broker.parts.server.dispatcher.guard = Gate(control)
    await broker.start()
    yield Guarded(broker, port, control)
    await broker.stop()


def request(
    code: int, header: Header, credentials: Credentials | None, opaque: int = 0, body: bytes = b"", dialect: int = JSON
) -> bytes:
    command = RemotingCommand.request(code, header, body)
    command.opaque, command.dialect = opaque, dialect
    frame = encode_command(command)
    return frame if credentials is None else credentials.signed_frame(frame)


def send(opaque: int, credentials: Credentials | None, dialect: int = JSON, *, is_common: bool = True) -> bytes:
    """Return a send to queue 0; without common properties it is not on the fast path."""
    properties = f"UNIQ_KEY\x01A{opaque}\x02" + ("" if is_common else "n\x01\u8ba2\x02")
    header = SendMessageV2Header(
        "producers", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, properties, unit_mode="false", batch="false"
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, credentials, opaque, b"body%d" % opaque, dialect)


async def codes(peer: RawPeer, frames: list[bytes]) -> dict[int, int]:
    """Send frames in one write; return the code of each response by opaque."""
    peer.send(b"".join(frames))
    received = [await peer.receive() for _ in frames]
    return {response.header["opaque"]: response.code for response in received}


async def ready_peer(port: int) -> RawPeer:
    """Return a connection after the topic was created."""
    peer = await RawPeer.connect(port)
    topic = CreateTopicHeader(TOPIC, "TBW102", 1, 1, 6, "SINGLE_TAG", 0, order="false")
    assert await codes(peer, [request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic, GOOD)]) == {0: 0}
    return peer


@pytest.mark.parametrize("bad", [BAD, NONE], ids=["bad signature", "no signature"])
@pytest.mark.parametrize("is_common", [True, False], ids=["fast path", "general path"])
async def test_a_bad_send_in_a_run_is_refused_and_all_others_are_stored(
    guarded: Guarded, bad: Credentials | None, is_common: bool
) -> None:
    """The sends before and after it are stored in order; each request is checked once."""
    async with await ready_peer(guarded.port) as peer:
        before = guarded.control.checked
        frames = [send(number, bad if number == 5 else GOOD, is_common=is_common) for number in range(10)]
        found = await codes(peer, frames)
        assert found == {number: 16 if number == 5 else 0 for number in range(10)}
        assert guarded.control.checked - before == 10
        end = request(RequestCode.GET_MAX_OFFSET, QueueHeader(TOPIC, 0), GOOD)
        peer.send(end)
        assert (await peer.receive()).ext["offset"] == "9"


async def test_runs_of_both_dialects_and_longer_than_the_limit_are_admitted_once(guarded: Guarded) -> None:
    """A run is checked in parts of MAX_RUN requests."""
    async with await ready_peer(guarded.port) as peer:
        before = guarded.control.checked
        count = 2 * MAX_RUN + 10
        frames = [send(number, GOOD, number % 2 and ROCKETMQ) for number in range(count)]
        peer.send(b"".join(frames))
        responses = [await peer.receive_raw() for _ in frames]
        assert len(responses) == count
        assert guarded.control.checked - before == count


async def test_without_credentials_nothing_is_served(guarded: Guarded) -> None:
    """Each code goes through the gate, also codes that have no run processor."""
    async with await RawPeer.connect(guarded.port) as peer:
        header = QueueHeader(TOPIC, 0)
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
            assert await codes(peer, [request(code, header, NONE), request(code, header, BAD, 1)]) == {0: 16, 1: 16}
