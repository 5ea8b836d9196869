"""A remoting server and one peer, over real sockets; a test sets fields of `config` by `indirect`."""

from collections.abc import AsyncIterator

import pytest

from skylarkmq.broker.remoting.config import RemotingConfig
from tests.harness.echo_server import EchoServer
from tests.harness.raw_peer import RawPeer


@pytest.fixture
def config(request: pytest.FixtureRequest) -> RemotingConfig:
    return RemotingConfig(**getattr(request, "param", {}))


@pytest.fixture
async def server(config: RemotingConfig) -> AsyncIterator[EchoServer]:
    async with EchoServer(config) as server:
        yield server


@pytest.fixture
async def peer(server: EchoServer) -> AsyncIterator[RawPeer]:
    async with await RawPeer.connect(server.port) as peer:
        yield peer
