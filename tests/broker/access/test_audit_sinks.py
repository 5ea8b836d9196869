"""Places of the audit log: whole lines, rotation, journald's protocol."""

import json
import os
import socket
import stat
import struct
from pathlib import Path
from unittest.mock import patch

import pytest

from skylarkmq.broker.access.audit_sinks import FileSink, JournalSink, text_of


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_entry_is_one_line_in_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    """An existing file gets the same mode, and keeps its lines."""
    path = tmp_path / "audit.log"
    path.write_text('{"n":0}\n')
    path.chmod(0o644)
    FileSink(path, 1 << 20, 3).write({"n": 1})
    assert lines(path) == [{"n": 0}, {"n": 1}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_control_characters_are_escaped() -> None:
    """No text can forge a line or reach a terminal as a sequence."""
    text = "a\nb\x1b[0m\x7f\x85\u202e\u2028"
    assert text_of({"topic": text}).isprintable()
    assert text_of({"topic": text}).isascii()
    assert json.loads(text_of({"topic": text})) == {"topic": text}


def test_a_full_file_is_renamed_and_the_oldest_deleted(tmp_path: Path) -> None:
    """A file is at most auditLogMaxBytes long; auditLogFiles of them are kept, all with mode 0600."""
    path = tmp_path / "audit.log"
    size = len(text_of({"n": 1})) + 1
    sink = FileSink(path, 2 * size, 3)
    for number in range(9):
        sink.write({"n": number})
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert [lines(file) for file in files] == [[{"n": 8}], [{"n": 6}, {"n": 7}], [{"n": 4}, {"n": 5}]]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_single_file_begins_again(tmp_path: Path) -> None:
    """With auditLogFiles=1 there is no older file."""
    path = tmp_path / "audit.log"
    sink = FileSink(path, len(text_of({"n": 1})) + 1, 1)
    for number in range(3):
        sink.write({"n": number})
    assert (list(tmp_path.iterdir()), lines(path)) == ([path], [{"n": 2}])


def test_a_file_that_was_moved_is_created_again(tmp_path: Path) -> None:
    """Another program may rotate the log: no signal is needed."""
    path = tmp_path / "audit.log"
    sink = FileSink(path, 1 << 20, 3)
    sink.write({"n": 1})
    path.rename(tmp_path / "moved")
    sink.write({"n": 2})
    assert (lines(tmp_path / "moved"), lines(path)) == ([{"n": 1}], [{"n": 2}])


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_part(tmp_path: Path) -> None:
    """A short write is undone and reported; the next one continues at a new line."""
    path = tmp_path / "audit.log"
    sink = FileSink(path, 1 << 20, 3)
    sink.write({"n": 1})
    write = os.write
    with patch("os.write", lambda fd, data: write(fd, data[:3])), pytest.raises(OSError, match="no space"):
        sink.write({"n": 2})
    sink.write({"n": 3})
    assert lines(path) == [{"n": 1}, {"n": 3}]


def fields_of(datagram: bytes) -> dict[str, str]:
    """Read a datagram as journald does."""
    fields = {}
    while datagram:
        name, _, rest = datagram.partition(b"\n")
        (size,) = struct.unpack_from("<Q", rest)
        fields[name.decode()] = rest[8 : 8 + size].decode()
        assert rest[8 + size : 9 + size] == b"\n"
        datagram = rest[9 + size :]
    return fields


def test_journald_gets_the_members_as_fields(tmp_path: Path) -> None:
    """MESSAGE is the whole entry; refusals have a higher priority; a restarted journald is reached again."""
    path = tmp_path / "socket"
    sink = JournalSink(path)
    with pytest.raises(FileNotFoundError):
        sink.write({"event": "admin"})
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
            journal.bind(str(path))
            try:
                sink.write({"event": "refused", "code": 17, "topic": "a\nb"})
            except ConnectionRefusedError:  # the socket of the first journald
                sink.write({"event": "refused", "code": 17, "topic": "a\nb"})
            fields = fields_of(journal.recv(65_536))
        path.unlink()
        assert fields == {
            "MESSAGE": '{"event":"refused","code":17,"topic":"a\\nb"}',
            "PRIORITY": "5",
            "SYSLOG_IDENTIFIER": "skylark-audit",
            "SKYLARK_EVENT": "refused",
            "SKYLARK_CODE": "17",
            "SKYLARK_TOPIC": "a\\nb",
        }
    sink.close()
