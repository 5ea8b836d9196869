"""The layout of a plain send's header: where values stand in it, which differ from send to send, and what is fixed.

A layout is found in one header, and not trusted for how it was found: it counts only if the general decoder, given the
header with other values in those places, finds these values and no other difference. Then each header that has the
same fixed bytes is read as the general decoder would read it: digits in place of digits, and plain characters in place
of plain characters, change nothing else in JSON.

Many headers of a layout stand one behind the other as rows; NumPy cuts a column out of all rows at once.
"""

import re
from functools import cache
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from protocol.headers.send import SendMessageHeader
from protocol.message import ENTRY_END, PropertyName, tags_code
from protocol.send_command import DECODERS, SendCommand

_ZERO: Final = ord("0")
_MOST_DIGITS: Final = 15

_NUMBER: Final = rb"(0|[1-9][0-9]{0,%d})" % (_MOST_DIGITS - 1)
_OPAQUE: Final = re.compile(rb'"opaque":%b[,}]' % _NUMBER)
_TEXT: Final = rb'":"((?:[ !#-\[\]-~]|\\u000[12])*)"'
_FIELDS: Final = {
    begin: [
        re.compile(b'"%b' % name + pattern)
        for name, pattern in zip(names, (rb'":"%b"' % _NUMBER, rb'":"%b"' % _NUMBER, _TEXT), strict=True)
    ]
    for begin, names in (
        (b'{"code":310,', (b"e", b"g", b"i")),
        (b'{"code":10,"', (b"queueId", b"bornTimestamp", b"properties")),
    )
}
"""Where queue id, born time and properties stand, by the beginning of the header."""

_UNIT: Final = re.compile(rb"\\u000([12])|.")  # of a text: an escape, or a character
_ENTRY: Final = re.compile(b"([^\x01\x02]+)\x01([^\x01\x02]+)\x02")
_FIXED_VALUES: Final = {PropertyName.TAGS.encode(), PropertyName.WAIT.encode()}
_KEYS: Final = PropertyName.KEYS.encode()
_UNIQ_KEY: Final = PropertyName.UNIQ_KEY.encode()
_END: Final = ENTRY_END.encode()


_PLAIN: Final = bytes(byte for byte in range(ord("!"), ord("~") + 1) if byte not in b'"\\')  # no space: it parts keys

Span: TypeAlias = tuple[int, int]


class Sent(NamedTuple):
    """The columns of sends, in their order."""

    queue_ids: list[int]
    born_timestamps: list[int]
    opaques: list[bytes]
    """Digits."""
    properties: list[bytes]
    """With the end of the last entry."""
    unique_keys: list[bytes]
    keys: list[bytes]
    """The value of KEYS, without spaces; empty if they have none."""
    tags_codes: list[int]


class Layout:
    """Headers of one length and meaning. `sample` is the one that it was found in."""

    def __init__(self, header: bytes, sample: SendCommand, places: "Places") -> None:
        self.sample: SendMessageHeader = sample.sent
        self.code = sample.code
        self.own = places.own
        self._size = len(header)
        self._places = places
        self._mask = np.full(self._size, 0xFF, np.uint8)
        for begin, end in (*places.numbers, *places.values.values()):
            self._mask[begin:end] = 0
        self._fixed = (np.frombuffer(header, np.uint8) & self._mask).tobytes()

    @property
    def has_keys(self) -> bool:
        """Whether its sends are found by more than their unique keys."""
        return self._places.keys is not None

    def strangers(self, headers: bytes) -> list[int]:
        """Which of these headers, which are as long, have other fixed bytes."""
        count = len(headers) // self._size
        rows = np.frombuffer(headers, np.uint8).reshape(count, self._size) & self._mask
        fixed = rows.tobytes()
        if fixed == self._fixed * count:
            return []
        return [at for at, row in enumerate(cut(fixed, count, self._size, (0, self._size))) if row != self._fixed]

    def read(self, headers: bytes) -> Sent | None:
        """The columns of headers; None if there is something else in the place of a value."""
        size, places, own_size = self._size, self._places, len(self.own)
        count = len(headers) // size
        opaques, queue_ids, born = (column(headers, count, size, span) for span in places.numbers)
        own = bytearray(self.own * count)
        for (begin, end), (from_, to) in places.values.items():
            values = column(headers, count, size, (from_, to))
            column(own, count, own_size, (begin, end))[:] = values
            if _unlike(values.tobytes(), places.unique == (begin, end)):
                return None
        ids, times = _numbers(queue_ids.tolist()), _numbers(born.tolist())
        if ids is None or times is None or not _are_opaques(opaques.tobytes(), opaques.itemsize):
            return None
        return Sent(
            ids,
            times,
            opaques.tolist(),
            cut(own, count, own_size, (0, own_size)),
            cut(own, count, own_size, places.unique),
            [] if places.keys is None else cut(own, count, own_size, places.keys),
            [places.tags_code] * count,
        )


def column(rows: bytes | bytearray | memoryview, count: int, size: int, span: Span) -> NDArray[np.void]:
    """The part of each row of so many bytes that lies in a span, as they stand."""
    return np.ndarray((count,), _void(span[1] - span[0]), rows, span[0], (size,))


def cut(rows: bytes | bytearray | memoryview, count: int, size: int, span: Span) -> list[bytes]:
    """The same, copied."""
    copied: list[bytes] = column(rows, count, size, span).tolist()
    return copied


@cache
def _void(size: int) -> np.dtype[np.void]:
    return np.dtype(f"V{size}")


def _unlike(text: bytes, is_key: bool) -> bool:
    """Whether something else stands among values."""
    return not text.isalnum() if is_key else bool(text.translate(None, _PLAIN))


def _numbers(texts: list[bytes]) -> list[int] | None:
    """Texts of one length as numbers, of which there are few; None if one is no number, or has a zero in front."""
    known: dict[bytes, int] = {}
    for text in set(texts):
        if not text.isdigit() or (text[0] == _ZERO and len(text) > 1):
            return None
        known[text] = int(text)
    return list(map(known.__getitem__, texts))


def _are_opaques(text: bytes, width: int) -> bool:
    """Whether these texts, one behind the other, are numbers that an opaque may be; those near the largest are not."""
    firsts = text[::width]
    return text.isdigit() and (width == 1 or b"0" not in firsts) and (width < 10 or not firsts.strip(b"1"))


# -------------------------------------------------------------------------------------------------------------- layouts


class Places(NamedTuple):
    """Where values stand: numbers in the header, values of properties in `own` and in the header."""

    numbers: tuple[Span, Span, Span]  # opaque, queue id, born time
    own: bytes
    values: dict[Span, Span]
    unique: Span
    keys: Span | None
    tags_code: int


def find_layout(header: bytes) -> Layout | None:
    """The layout of a header; None if it is not that of a plain send, or not to be trusted."""
    decode = DECODERS.get(header[:12])
    if decode is None:
        return None
    try:
        sample = decode(memoryview(header))
        places = _find_places(header, sample)
        if places is None or _other_values(header, sample, places) != decode(_probe(header, places)):
            return None
    except (ValueError, RecursionError):
        return None
    return Layout(header, sample, places)


def _find_places(header: bytes, sample: SendCommand) -> Places | None:
    opaque = _OPAQUE.search(header)
    queue_id, born, text = (pattern.search(header) for pattern in _FIELDS[header[:12]])
    sent: SendMessageHeader = sample.sent
    if opaque is None or queue_id is None or born is None or text is None:
        return None
    if (int(opaque[1]), int(queue_id[1]), int(born[1])) != (sample.opaque, sent.queue_id, sent.born_timestamp):
        return None
    if sample.flag or (sent.batch and sent.batch != "false"):
        return None
    units = list(_UNIT.finditer(header, *text.span(1)))
    own = b"".join(bytes((int(unit[1]),)) if unit[1] else unit[0] for unit in units)
    if own != sent.properties.encode():
        return None
    if own[-1:] != _END:
        own += _END
    entries = list(_ENTRY.finditer(own))
    values = {entry[1]: entry for entry in entries}
    if b"".join(entry[0] for entry in entries) != own or len(values) < len(entries) or _UNIQ_KEY not in values:
        return None
    if _KEYS in values and b" " in values[_KEYS][2]:
        return None
    tags = values.get(PropertyName.TAGS.encode())
    return Places(
        (opaque.span(1), queue_id.span(1), born.span(1)),
        own,
        {
            entry.span(2): (units[entry.start(2)].start(), units[entry.end(2) - 1].end())
            for name, entry in values.items()
            if name not in _FIXED_VALUES
        },
        values[_UNIQ_KEY].span(2),
        values[_KEYS].span(2) if _KEYS in values else None,
        tags_code(None if tags is None else tags[2].decode()),
    )


def _probe(header: bytes, places: Places) -> memoryview:
    """The header with other values."""
    probe = bytearray(header)
    for begin, end in places.numbers:
        first = begin if end - begin == 1 else begin + 1
        probe[first:end] = _other_number(header[first:end])
    for begin, end in places.values.values():
        probe[begin:end] = _other_text(header[begin:end])
    return memoryview(probe)


def _other_values(header: bytes, sample: SendCommand, places: Places) -> SendCommand:
    """What the probe means if the places are right."""
    numbers = []
    for begin, end in places.numbers:
        first = begin if end - begin == 1 else begin + 1
        numbers.append(int(header[begin:first] + _other_number(header[first:end])))
    own = bytearray(places.own)
    for begin, end in places.values:
        own[begin:end] = _other_text(own[begin:end])
    sent = msgspec.structs.replace(
        sample.sent,
        queue_id=numbers[1],
        born_timestamp=numbers[2],
        properties=own.decode()[: len(sample.sent.properties)],
    )
    return msgspec.structs.replace(sample, opaque=numbers[0], sent=sent)


def _other_number(digits: bytes) -> bytes:
    return bytes(ord("1") if digit == ord("0") else ord("0") for digit in digits)


def _other_text(text: bytes | bytearray) -> bytes:
    return bytes(ord("b") if byte == ord("a") else ord("a") for byte in text)
