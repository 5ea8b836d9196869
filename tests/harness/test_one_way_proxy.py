"""The proxy: a direction that is cut passes neither bytes nor the end of a connection; nothing is lost."""

import asyncio

from tests.harness.one_way_proxy import Direction, OneWayProxy
from tests.harness.ports import LOOPBACK, free_ports


async def test_each_direction_is_cut_alone() -> None:
    """What was sent meanwhile arrives after the cut, in order."""
    (port,) = free_ports(1)
    accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    target = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), LOOPBACK, 0)
    proxy = OneWayProxy(port, target.sockets[0].getsockname()[1])
    await proxy.start()
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    far_reader, far_writer = await accepted.get()
    proxy.cut(Direction.TO_CLIENT)
    far_writer.write(b"held ")
    writer.write(b"passes")
    assert await far_reader.readexactly(6) == b"passes"
    far_writer.write(b"back")
    far_writer.write_eof()
    writer.write(b" still")
    assert await far_reader.readexactly(6) == b" still"
    waiting = asyncio.create_task(reader.read())
    assert not waiting.done()
    proxy.heal()
    assert await waiting == b"held back"
    writer.close()
    assert await far_reader.read() == b""
    far_writer.close()
    await proxy.stop()
    target.close()
    await target.wait_closed()


async def test_a_target_that_does_not_listen_ends_the_connection() -> None:
    """As a refused connection does."""
    port, target_port = free_ports(2)
    proxy = OneWayProxy(port, target_port)
    await proxy.start()
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        assert await reader.read() == b""
    except ConnectionResetError:
        pass
    writer.close()
    await proxy.stop()
