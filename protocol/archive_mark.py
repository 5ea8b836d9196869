"""The archive mark, `config/archive.json` of a store: how far an archive contains the messages of the log.

    {"lowWaterMark":3221225472,"updatedAt":1700000000000,"archive":"/data/archive"}

The archive job (clients/spark/archive) replaces the file as a whole; the broker reads it (`archiveHold`). Readers treat
the content as untrusted.

Source: docs/reference/disk.md, "Archive mark".
"""

from typing import Annotated, Final

import msgspec

ARCHIVE_MARK_FILE: Final = "archive.json"
MAX_MARK_BYTES: Final = 16 << 10
"""Maximum size of the file."""
_LONG_MAX: Final = (1 << 63) - 1
_MAX_TEXT: Final = 4096

_Long = Annotated[int, msgspec.Meta(ge=0, le=_LONG_MAX)]


class ArchiveMark(msgspec.Struct, frozen=True, rename="camel"):
    """All messages of the log below byte `low_water_mark` are archived, or cannot be read by a consumer.

    `updated_at`: Unix time in ms of the last run of the job that completed. `archive`: the archive, for operators.
    """

    low_water_mark: _Long
    updated_at: _Long
    archive: Annotated[str, msgspec.Meta(max_length=_MAX_TEXT)] = ""


_DECODER: Final = msgspec.json.Decoder(ArchiveMark)


def decode_mark(data: bytes) -> ArchiveMark:
    """Return the mark of a file's content. Raises ValueError for any other content."""
    if len(data) > MAX_MARK_BYTES:
        raise ValueError(f"longer than {MAX_MARK_BYTES} bytes")
    try:
        return _DECODER.decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode_mark(mark: ArchiveMark) -> bytes:
    """Return the content of the file."""
    return msgspec.json.encode(mark)
