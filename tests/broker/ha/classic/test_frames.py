"""Frames of classic replication: reports and transfers, whole and byte by byte, and bytes that are neither."""

from collections.abc import Iterable

import pytest

from skylarkmq.broker.ha.classic.frames import (
    HEADER_BYTES,
    MAX_OFFSET,
    MAX_TRANSFER_BYTES,
    FrameError,
    ReportReader,
    Transfer,
    TransferReader,
    pack_header,
    pack_report,
)
from skylarkmq.broker.ha.link.frames import PREFACE

TRANSFERS = [Transfer(0, b"first"), Transfer(5, b""), Transfer(5, b"\0" * 100)]
STREAM = b"".join(pack_header(offset, len(data)) + data for offset, data in TRANSFERS)


def transfers_of(pieces: Iterable[bytes]) -> list[Transfer]:
    reader = TransferReader()
    return [transfer for piece in pieces for transfer in reader.feed(piece)]


def test_reports_and_headers_have_the_layout_of_rocketmq() -> None:
    """A report is an i64; a header is an i64 and an i32, big-endian."""
    assert pack_report(0x0102030405060708) == bytes(range(1, 9))
    assert pack_header(0x0102030405060708, 0x090A0B0C) == bytes(range(1, 13))


def test_the_last_whole_report_counts() -> None:
    """Of several reports in one read the last whole one is returned, and the rest of the bytes is kept."""
    reader = ReportReader()
    assert reader.feed(pack_report(7) + pack_report(9) + pack_report(11)[:3]) == 9
    assert reader.feed(pack_report(11)[3:]) == 11
    assert [reader.feed(bytes([byte])) for byte in pack_report(12)] == [None] * 7 + [12]


@pytest.mark.parametrize("end", [-1, MAX_OFFSET, -(1 << 63)])
def test_a_report_that_no_log_has_is_refused(end: int) -> None:
    """Negative reports and reports above any log raise FrameError."""
    with pytest.raises(FrameError, match=str(end)):
        ReportReader().feed(pack_report(end))


def test_the_preface_of_a_link_is_never_a_report() -> None:
    """The first bytes of Skylark's own protocol raise FrameError, in every order of arrival."""
    with pytest.raises(FrameError):
        ReportReader().feed(PREFACE)


@pytest.mark.parametrize("size", [1, 5, 11, 12, 13, 1000])
def test_transfers_are_read_whatever_the_pieces(size: int) -> None:
    """Transfers and heartbeats are the same whether they arrive whole or in pieces."""
    assert transfers_of(STREAM[at : at + size] for at in range(0, len(STREAM), size)) == TRANSFERS


def test_the_offset_of_an_unfinished_transfer_is_known() -> None:
    """A slave can compare the offset of a transfer as soon as its header has arrived."""
    reader = TransferReader()
    assert list(reader.feed(pack_header(77, 10)[:-1])) == []
    assert reader.expected_offset is None
    assert list(reader.feed(pack_header(77, 10)[-1:] + b"part")) == []
    assert reader.expected_offset == 77


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 0), (MAX_OFFSET, 0), (0, -1), (0, MAX_TRANSFER_BYTES + 1), (0, (1 << 31) - 1)]
)
def test_a_header_that_no_master_sends_is_refused(offset: int, size: int) -> None:
    """A header with an impossible offset or size raises FrameError before its data is collected."""
    with pytest.raises(FrameError):
        list(TransferReader().feed(pack_header(offset, size)))


def test_the_largest_transfer_is_read() -> None:
    """A transfer of the largest size fits, and the reader keeps none of it afterwards."""
    reader = TransferReader()
    data = bytes(MAX_TRANSFER_BYTES)
    assert list(reader.feed(pack_header(8, MAX_TRANSFER_BYTES) + data)) == [Transfer(8, data)]
    assert HEADER_BYTES + MAX_TRANSFER_BYTES == 4 << 20
    assert reader.expected_offset is None
