"""Output of a connection that sends files: order, full sockets, threads, and the ways in which a transfer ends."""

import asyncio
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.broker.base import page_faults
from skylarkmq.broker.remoting import connection_writer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.sendfile import SENDFILE_FROM_BYTES, TransferStatistics
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.read.log_reads import Region as StoreRegion
from tests.harness.file_line import FileLine
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.peer import Peer
from tests.harness.rounds import rounds
from tests.harness.waiting import until

LONG = SENDFILE_FROM_BYTES
MIB = 1 << 20


@pytest.fixture
async def line() -> AsyncIterator[FileLine]:
    async with FileLine() as line:
        yield line


def figures(line: FileLine) -> TransferStatistics:
    return line.selector.pending_writes.statistics()


def assert_over(line: FileLine) -> None:
    """Check that nothing waits and no file is pinned."""
    assert (figures(line).waiting, figures(line).backlog_bytes, line.file.holders) == (0, 0, [])


# ------------------------------------------------------------------------------------------------------ truncated files


@pytest.mark.parametrize("is_hot", [True, False])
@pytest.mark.parametrize("size", [LONG, 10 * LONG])
async def test_a_truncated_file_ends_the_connection(line: FileLine, is_hot: bool, size: int) -> None:
    """A frame that was begun cannot be completed: the peer reads its beginning and the end of the stream."""
    os.ftruncate(line.file.fd, LONG - 5_000)
    line.connection.write_regions([line.file.region(0, size, is_hot=is_hot)], b"head")
    line.selector.pending_writes.flush()
    got = await read_to_end(line)
    assert (b"head" + line.file.data[: LONG - 5_000]).startswith(got)
    assert (line.connection.closed, figures(line).cut) == (True, 1)
    assert_over(line)


@pytest.mark.skipif(page_faults.Range is page_faults.Unwatched, reason="no compiled modules here")
async def test_a_fault_while_bytes_are_copied_ends_the_connection(line: FileLine) -> None:
    """Zeros in place of lost bytes never reach a peer."""
    page_faults.install()
    watched = page_faults.Range(line.file.view.obj)
    os.ftruncate(line.file.fd, 0)
    for position in (0, 5_000):
        line.connection.write_regions([line.file.region(position, 1_000)], b"head")
    line.selector.pending_writes.flush()
    assert set(await read_to_end(line)) <= set(b"head")
    assert (line.connection.closed, figures(line).cut) == (True, 1)
    watched.forget()


async def read_to_end(line: FileLine) -> bytes:
    """Return the bytes that the peer gets until its connection ends."""
    got = bytearray()
    try:
        while data := await asyncio.wait_for(asyncio.get_running_loop().sock_recv(line.peer, 65_536), 10):
            got += data
    except ConnectionResetError:
        pass
    await until(lambda: line.connection.closed)
    return bytes(got)


# ---------------------------------------------------------------------------------------------------------------- order

PIECES = st.one_of(
    st.tuples(st.just("bytes"), st.sampled_from([1, 100, 5_000, 70_000]), st.booleans()),
    st.tuples(st.just("records"), st.sampled_from([1, 700, 5_001, 70_000, 300_000]), st.booleans()),
    st.tuples(st.just("region"), st.sampled_from([1, 700, LONG - 1, LONG, 3 * LONG, 400_000]), st.booleans()),
)


@given(
    batches=st.lists(st.lists(PIECES, min_size=1, max_size=5), min_size=1, max_size=6),
    reads=st.sampled_from([900, 20_000, 1 << 20]),
    reads_first=st.booleans(),
    copies=st.booleans(),
)
@settings(max_examples=rounds(60))
def test_pieces_leave_in_order_byte_by_byte(batches: Any, reads: int, reads_first: bool, copies: bool) -> None:
    """The peer gets the written bytes, for any mixture of bytes, records and regions, hot and cold, in any batches."""
    uvloop.run(exchange(batches, reads, reads_first, copies))


async def exchange(batches: list[list[tuple[str, int, bool]]], reads: int, reads_first: bool, copies: bool) -> None:
    async with FileLine(RemotingConfig(transfer_by_copying=copies)) as line:
        expected = bytearray()
        reading = asyncio.ensure_future(line.read(1 << 30, reads)) if reads_first else None
        for number, batch in enumerate(batches):
            for kind, size, is_hot in batch:
                position = (len(expected) * 7919) % (MIB - size)
                if kind == "bytes":
                    data = bytes([number + 1]) * size
                    line.connection.write(data)
                elif kind == "records":
                    data = b"head" + line.file.data[position : position + size]
                    line.connection.write_regions([line.file.records(position, size)], b"head")
                else:
                    data = line.file.data[position : position + size]
                    line.connection.write_regions([line.file.region(position, size, is_hot=is_hot)])
                expected += data
            line.selector.pending_writes.flush()
            await asyncio.sleep(0)
        line.connection.close()
        received = await (reading or line.read(1 << 30, reads))
        assert received == expected
        await until(lambda: not line.selector.registry.connections)
        assert_over(line)
        assert line.selector.statistics().sent_bytes == len(expected)


async def test_a_response_does_not_overtake_a_file(line: FileLine) -> None:
    """Output written while a region waits for its peer is sent after it."""
    line.connection.write_regions([line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    line.connection.write(b"answer")
    line.selector.pending_writes.flush()
    assert await line.read(MIB + 6) == line.file.data + b"answer"
    await until(lambda: not line.connection.backlog_bytes)
    assert_over(line)


# --------------------------------------------------------------------------------------------------- methods of sending


async def way_of(line: FileLine, position: int, size: int, *, is_hot: bool) -> list[str]:
    """Return the counters that one response with a region changes, without its head; the first of two may be queued."""
    before = figures(line)
    for _ in range(2):
        before = figures(line)
        line.connection.write(b"head")
        line.connection.write_regions([line.file.region(position, size, is_hot=is_hot)])
        line.selector.pending_writes.flush()
        assert await line.read(4 + size) == b"head" + line.file.data[position : position + size]
        await until(lambda: not line.connection.backlog_bytes)
    after = figures(line)
    moved = {name: getattr(after, name) - getattr(before, name) for name in after.__struct_fields__}
    moved["copied_bytes"] -= 4
    return [name for name, count in moved.items() if count == size]


@pytest.mark.parametrize(
    ("size", "is_hot", "copies", "ways"),
    [
        (LONG, True, False, ["sent_bytes"]),
        (LONG - 1, True, False, ["copied_bytes"]),
        (LONG, False, False, ["cold_sent_bytes"]),
        (100, False, False, ["cold_sent_bytes"]),
        (LONG, True, True, ["copied_bytes"]),
        (LONG, False, True, ["copied_bytes", "cold_read_bytes"]),
    ],
)
async def test_length_and_residency_choose_the_method(size: int, is_hot: bool, copies: bool, ways: list[str]) -> None:
    """Long regions are sent by sendfile, short ones copied; a thread sends regions that may be cold; by heap all is
    copied."""
    async with FileLine(RemotingConfig(transfer_by_copying=copies)) as line:
        assert await way_of(line, 1234, size, is_hot=is_hot) == ways
        assert_over(line)


async def test_a_region_that_waits_for_long_is_cold(line: FileLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have left memory by then: a thread sends the rest."""
    monkeypatch.setattr(connection_writer, "HOT_FOR_S", -1.0)
    line.connection.write_regions([line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    assert await line.read(MIB) == line.file.data
    await until(lambda: not line.connection.backlog_bytes)
    assert figures(line).cold_sent_bytes == MIB


async def test_without_a_descriptor_files_are_copied(line: FileLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without free descriptors continues as if sendfile were not possible."""

    def refuse(_fd: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("os.dup", refuse)
    line.connection.write_regions([line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    assert await line.read(MIB) == line.file.data
    await until(lambda: not line.connection.backlog_bytes)
    assert (figures(line).sent_bytes, figures(line).copied_bytes) == (0, MIB)
    assert_over(line)


async def test_a_transport_without_a_socket_gets_copies() -> None:
    """As with one that encrypts: a thread reads cold regions, and later output stays after them."""
    async with FileLine() as line:
        peer = Peer(Dispatcher(), line.selector)
        peer.connection.write(b"head")
        peer.connection.write_regions([line.file.region(0, MIB, is_hot=False), line.file.region(5, LONG)])
        peer.selector.pending_writes.flush()
        peer.connection.write(b"tail")
        peer.selector.pending_writes.flush()
        expected = b"head" + line.file.data + line.file.data[5 : 5 + LONG] + b"tail"
        await until(lambda: len(peer.transport.written) == len(expected))
        assert peer.transport.written == expected
        assert (figures(line).cold_read_bytes, line.file.holders) == (MIB, [])
        peer.disconnect()  # else the line would wait for it


# -------------------------------------------------------------------------------------------------------------- backlog


async def test_bytes_of_files_count_as_backlog() -> None:
    """They pause a peer that does not take them, and are not counted any more when it has."""
    async with FileLine(RemotingConfig(peer_backlog_bytes=100_000)) as line:
        line.connection.write_regions([line.file.region(0, MIB)])
        line.selector.pending_writes.flush()
        assert line.connection.paused
        assert 900_000 < line.selector.pending_writes.backlog_bytes == line.connection.backlog_bytes < MIB
        assert line.connection.unread_bytes == 0  # none of them is in memory
        assert await line.read(MIB) == line.file.data
        await until(lambda: not line.connection.paused)
        assert_over(line)


async def test_a_peer_that_takes_a_file_slowly_is_not_idle(line: FileLine) -> None:
    """Each piece that it takes is activity."""
    line.connection.write_regions([line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    line.connection.active_s = 0.0
    await line.read(MIB // 2)
    assert line.connection.active_s > 0.0


# --------------------------------------------------------------------------------------------------- ends of a transfer


def descriptors() -> int:
    gc.collect()  # also closes those that earlier tests left open
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_peer_that_dies_in_the_middle(line: FileLine, is_hot: bool) -> None:
    """Its files are released, and so is the descriptor that they were sent to."""
    before = descriptors()
    line.connection.write_regions([line.file.region(0, MIB, is_hot=is_hot), line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    await line.read(10_000)
    assert len(line.file.holders) == 2
    line.reset()
    await until(lambda: not line.selector.registry.connections)
    await until(lambda: not line.file.holders)
    assert_over(line)
    await until(lambda: descriptors() == before - 2)  # both ends of the line


class Gate:
    """Replaces os.sendfile in a thread, and blocks until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real: Callable[..., int] = os.sendfile
        self.is_open = threading.Event()
        self.reached = threading.Event()
        monkeypatch.setattr("os.sendfile", self._sendfile)

    def _sendfile(self, *arguments: int) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.reached.set()
            assert self.is_open.wait(WAIT_LIMIT_S)
        return self._real(*arguments)


async def test_a_peer_that_dies_while_a_thread_sends(line: FileLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is pinned until the thread returns; queued files are released at once."""
    gate = Gate(monkeypatch)
    before = descriptors()
    line.connection.write_regions([line.file.region(0, MIB, is_hot=False), line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    await until(gate.reached.is_set)
    line.connection.abort()
    await until(lambda: not line.selector.registry.connections)
    assert len(line.file.holders) == 1
    gate.is_open.set()
    await until(lambda: not line.file.holders)
    assert_over(line)
    await until(lambda: descriptors() == before - 1)  # the peer's end is still open


async def test_a_half_closed_peer_gets_the_rest(line: FileLine) -> None:
    """A half-close does not end a transfer; the connection closes after its last byte."""
    line.connection.write_regions([line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    line.peer.shutdown(socket.SHUT_WR)
    await until(lambda: line.connection.closed)
    line.connection.write(b"too late")
    assert await line.read(2 * MIB) == line.file.data
    await until(lambda: not line.selector.registry.connections)
    assert_over(line)


@pytest.mark.parametrize("is_hot", [True, False])
async def test_closing_waits_for_the_last_region(line: FileLine, is_hot: bool) -> None:
    """Output written before `close` leaves, later output does not."""
    line.connection.write_regions([line.file.region(0, MIB, is_hot=is_hot)])
    line.connection.close()
    assert line.connection.closed
    line.connection.write(b"too late")
    line.connection.write_regions([line.file.region(0, MIB)])
    assert await line.read(2 * MIB) == line.file.data
    await until(lambda: not line.selector.registry.connections)
    assert_over(line)


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_revoked_file_closes_the_connection(line: FileLine, is_hot: bool) -> None:
    """Half a response cannot be taken back, so the peer gets nothing more."""
    line.connection.write_regions([line.file.region(0, MIB, is_hot=is_hot), line.file.region(0, MIB)])
    line.selector.pending_writes.flush()
    await line.read(10_000)
    line.file.revoke()
    await until(lambda: not line.file.holders)
    await until(lambda: not line.selector.registry.connections)
    assert figures(line).cut == 1
    assert_over(line)


async def test_a_file_that_ends_too_early_cuts_the_transfer(line: FileLine) -> None:
    """The response announced more bytes than the file has."""
    line.connection.write_regions([line.file.region(MIB - LONG, 2 * LONG)])
    line.selector.pending_writes.flush()
    await line.read(MIB)
    await until(lambda: not line.selector.registry.connections)
    assert figures(line).cut == 1
    assert_over(line)


@pytest.mark.parametrize("is_hot", [True, False])
async def test_a_disk_that_fails_cuts_the_transfer(
    line: FileLine, monkeypatch: pytest.MonkeyPatch, is_hot: bool
) -> None:
    """A file error closes this connection only; queued regions are not read."""

    def fail(*_arguments: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.sendfile", fail)
    line.connection.write_regions([line.file.region(0, MIB, is_hot=is_hot), line.file.region(0, MIB, is_hot=is_hot)])
    line.connection.write(b"more")
    line.selector.pending_writes.flush()
    await until(lambda: not line.selector.registry.connections)
    assert (figures(line).cut, figures(line).cold_read_calls) == (1, 0)
    assert_over(line)


async def test_an_immediate_send_can_fail_too(line: FileLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single region after its head takes another code path, with the same result."""
    assert await way_of(line, 0, LONG, is_hot=True) == ["sent_bytes"]

    def fail(*_arguments: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.sendfile", fail)
    line.connection.write(b"head")
    line.connection.write_regions([line.file.region(0, LONG)])
    line.selector.pending_writes.flush()
    await until(lambda: not line.selector.registry.connections)
    assert figures(line).cut == 1
    assert_over(line)


async def test_a_deleted_segment_is_sent_to_its_end(line: FileLine, tmp_path: Path) -> None:
    """Retention unlinks it during the transfer; it is closed after the last byte."""
    path, disk = str(tmp_path / "00000000000000000000"), Disk()
    segment = MappedFile(path, 0, MIB, disk.create(path, MIB), disk)
    segment.write(line.file.data, 0)
    line.connection.write_regions([StoreRegion(segment, 0, MIB)])
    line.selector.pending_writes.flush()
    segment.delete()
    assert (segment.holders, segment.close_if_free(), os.listdir(tmp_path)) == (1, False, [])
    assert await line.read(MIB) == line.file.data
    await until(lambda: not segment.holders)
    assert segment.close_if_free()
