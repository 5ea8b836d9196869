"""The archive mark: content that is accepted, and content that is not."""

import pytest

from skylarkmq.protocol.archive_mark import MAX_MARK_BYTES, ArchiveMark, decode_mark, encode_mark

MARK = ArchiveMark(low_water_mark=3_221_225_472, updated_at=1_700_000_000_000, archive="/data/archive")


def test_the_content_is_that_of_the_document() -> None:
    """docs/reference/disk.md, "Archive mark"."""
    text = b'{"lowWaterMark":3221225472,"updatedAt":1700000000000,"archive":"/data/archive"}'
    assert encode_mark(MARK) == text
    assert decode_mark(text) == MARK


def test_fields_of_later_versions_are_ignored_and_the_archive_may_be_missing() -> None:
    """Only the two numbers are needed."""
    assert decode_mark(b'{"updatedAt":2,"more":[1],"lowWaterMark":1}') == ArchiveMark(1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[]", b"\x00", b'{"lowWaterMark":1}', b'{"lowWaterMark":-1,"updatedAt":1}',
        b'{"lowWaterMark":1,"updatedAt":-1}', b'{"lowWaterMark":"1","updatedAt":1}',
        b'{"lowWaterMark":1.5,"updatedAt":1}', b'{"lowWaterMark":9223372036854775808,"updatedAt":1}',
        b'{"lowWaterMark":1,"updatedAt":1,"archive":"' + b"x" * 4097 + b'"}',
        b'{"lowWaterMark":' + b"9" * 5000 + b',"updatedAt":1}', b'{"lowWaterMark":1e5000,"updatedAt":1}',
        b'{"lowWaterMark":1,"updatedAt":1,"more":' + b"[" * 16_000,
        b'{"lowWaterMark":1,"updatedAt":1,"archive":"\xff"}',
        encode_mark(MARK).ljust(MAX_MARK_BYTES + 1),
    ],
)  # fmt: skip
def test_other_content_is_rejected(data: bytes) -> None:
    """Missing and negative numbers, other types, numbers beyond int64, deep nesting, and files that are too long."""
    with pytest.raises(ValueError):  # noqa: PT011 - the texts are msgspec's
        decode_mark(data)


def test_a_file_of_the_maximum_size_is_accepted() -> None:
    """Spaces may follow."""
    assert decode_mark(encode_mark(MARK).ljust(MAX_MARK_BYTES)) == MARK
