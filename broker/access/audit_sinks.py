"""Where audit entries go: a file that is rotated by size, or journald.

A sink writes one entry completely or raises OSError and has written nothing of it. Both sinks may block, so only the
writer thread calls them.

    FileSink      one JSON object per line, mode 0600. At `max_bytes` the file is renamed to `<name>.1`, and older
                  files to `.2` and so on; the oldest of `files` is deleted. A file that another program has moved or
                  deleted is created again.
    JournalSink   journald's native protocol: one datagram per entry, with the JSON text as MESSAGE and the members as
                  fields SKYLARK_…

Source: docs/reference/behaviour.md, "Audit log".
"""

import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
FILE_MODE: Final = 0o600

_NOTICE: Final = "5"
_INFO: Final = "6"
_NO_FILE: Final = -1

Entry = Mapping[str, str | int]
"""The members of an entry, by name."""


class Sink(Protocol):
    """Writes entries. Every method may raise OSError."""

    def write(self, entry: Entry) -> None:
        """Write one entry, or nothing."""

    def close(self) -> None:
        """Release the file or socket; a later write opens it again."""


def text_of(entry: Entry) -> str:
    """Return an entry as one line of JSON in ASCII. Control characters in its texts are escaped."""
    return json.dumps(entry, separators=(",", ":")).replace("\x7f", "\\u007f")


class FileSink:
    """Writes lines to a file."""

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._fd = _NO_FILE
        self._size = 0

    def __repr__(self) -> str:
        return f"<FileSink {self._path} bytes={self._size}>"

    def write(self, entry: Entry) -> None:
        """Append one line; a line that could be written only in part is removed again."""
        line = text_of(entry).encode() + b"\n"
        self._open()
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
            self._open()
        written = os.write(self._fd, line)
        if written < len(line):
            os.ftruncate(self._fd, self._size)
            raise OSError(f"no space for a line of {len(line)} bytes")
        self._size += written

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, _NO_FILE
        if fd != _NO_FILE:
            os.close(fd)

    def _open(self) -> None:
        """Open the file, unless it is open and still has its name."""
        if self._fd != _NO_FILE:
            if self._has_its_name():
                return
            self.close()
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(self._fd, FILE_MODE)
        self._size = os.fstat(self._fd).st_size

    def _has_its_name(self) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        opened = os.fstat(self._fd)
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)

    def _rotate(self) -> None:
        """Rename the files, the oldest first; without older files, the only one is emptied."""
        self.close()
        if self._files == 1:
            self._path.unlink(missing_ok=True)
            return
        for number in range(self._files - 1, 0, -1):
            younger = self._path if number == 1 else self._numbered(number - 1)
            if younger.exists():
                younger.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class JournalSink:
    """Sends entries to journald."""

    def __init__(self, path: Path = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def __repr__(self) -> str:
        return f"<JournalSink {self._path}>"

    def write(self, entry: Entry) -> None:
        """Send one datagram."""
        if self._socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            try:
                opened.connect(str(self._path))
            except OSError:
                opened.close()
                raise
            self._socket = opened
        try:
            self._socket.send(datagram_of(entry))
        except BlockingIOError:
            raise
        except OSError:
            self.close()  # journald was restarted
            raise

    def close(self) -> None:
        """Close the socket."""
        closed, self._socket = self._socket, None
        if closed is not None:
            closed.close()


def datagram_of(entry: Entry) -> bytes:
    """Return an entry in journald's native format. Fields have no new lines: those are escaped in texts."""
    fields = {
        "MESSAGE": text_of(entry),
        "PRIORITY": _NOTICE if entry.get("event") == "refused" else _INFO,
        "SYSLOG_IDENTIFIER": "skylark-audit",
    }
    fields |= {f"SKYLARK_{name.upper()}": json.dumps(str(value))[1:-1] for name, value in entry.items()}
    return b"".join(_field(name, value) for name, value in fields.items())


def _field(name: str, value: str) -> bytes:
    data = value.encode()
    return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
