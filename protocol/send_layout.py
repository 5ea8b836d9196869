"""The layout of a plain send's header: where values stand in it, which differ from send to send, and what is fixed.

A layout is found in one header, and not trusted for how it was found: it counts only if the general decoder, given the
header with other values in those places, finds these values and no other difference. Then each header that has the
same fixed bytes is read as the general decoder would read it: digits in place of digits, and plain characters in place
of plain characters, change nothing else in JSON.

A layout is a Struct, too, of texts: what is fixed and values in turns. One call in C takes each header apart, and from
there on all is done to columns: the fixed ones have one and the same text in all rows.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, pairwise, repeat
from struct import Struct
from sys import intern
from typing import Final, NamedTuple, TypeAlias

import msgspec

from skylarkmq.protocol.headers.send import SendMessageHeader
from skylarkmq.protocol.message import ENTRY_END, PropertyName, tags_code
from skylarkmq.protocol.send_command import DECODERS, SendCommand

_ZERO: Final = ord("0")
_MOST_DIGITS: Final = 15

_NUMBER: Final = rb"(0|[1-9][0-9]{0,%d})" % (_MOST_DIGITS - 1)
_OPAQUE: Final = re.compile(rb'"opaque":%b[,}]' % _NUMBER)
_TEXT: Final = rb'":"((?:[ !#-\[\]-~]|\\u000[12])*)"'
_TOPIC: Final = rb'":"([!#-\[\]-~]+)"'
_FIELDS: Final = {
    begin: [
        re.compile(b'"%b' % name + pattern)
        for name, pattern in zip(names, (_TOPIC, rb'":"%b"' % _NUMBER, rb'":"%b"' % _NUMBER, _TEXT), strict=True)
    ]
    for begin, names in (
        (b'{"code":310,', (b"b", b"e", b"g", b"i")),
        (b'{"code":10,"', (b"topic", b"queueId", b"bornTimestamp", b"properties")),
    )
}
"""Where topic, queue id, born time and properties stand, by the beginning of the header."""

_UNIT: Final = re.compile(rb"\\u000([12])|.")  # of a text: an escape, or a character
_ENTRY: Final = re.compile(b"([^\x01\x02]+)\x01([^\x01\x02]+)\x02")
_FIXED_VALUES: Final = {PropertyName.TAGS.encode(), PropertyName.WAIT.encode()}
_KEYS: Final = PropertyName.KEYS.encode()
_UNIQ_KEY: Final = PropertyName.UNIQ_KEY.encode()
_END: Final = ENTRY_END.encode()


PREFIX_BYTES: Final = 8
"""Of a frame."""
COPIED_BYTES: Final = 4096
"""Bodies up to that are cut out with the columns, which costs less than views of them."""
_KNOWN_FRAMES: Final = 1024
_KNOWN_NUMBERS: Final = 4096
_KNOWN_TOPICS: Final = 16_384

_PLAIN: Final = bytes(byte for byte in range(ord("!"), ord("~") + 1) if byte not in b'"\\')  # no space: it parts keys

Span: TypeAlias = tuple[int, int]


class Sent(NamedTuple):
    """The columns of sends, in their order."""

    topics: list[str]
    queue_ids: list[int]
    born_timestamps: list[int]
    opaques: Sequence[bytes]
    """Digits."""
    properties: list[bytes]
    """With the end of the last entry."""
    unique_keys: Sequence[bytes]
    keys: Sequence[bytes]
    """The value of KEYS, without spaces; empty if they have none."""
    tags_codes: list[int]


Columns: TypeAlias = list[tuple[bytes, ...]]
"""Of headers of a layout: what is fixed and values in turns; of whole frames, their bodies at the end."""


class Layout:
    """Headers of one length and meaning. `sample` is the one that it was found in."""

    def __init__(self, header: bytes, sample: SendCommand, places: "Places") -> None:
        self.sample: SendMessageHeader = sample.send_header
        self.code = sample.code
        self.own = places.own
        spans = sorted((places.topic, *places.numbers, *places.values.values()))
        number_of = {span: 2 * number + 1 for number, span in enumerate(spans)}
        self._format = _row_format(spans, len(header))
        self._row = Struct(self._format)
        self._fixed: tuple[bytes, ...] = self._row.unpack(header)[::2]
        self._topic = number_of[places.topic]
        self._numbers = [number_of[span] for span in places.numbers]
        self._values = [number_of[span] for span in places.values.values()]
        self._unique = number_of[places.values[places.unique]]
        self._keys = None if places.keys is None else number_of[places.values[places.keys]]
        self._own = Struct(_row_format(list(places.values), len(self.own)))
        *self._before_values, self._behind_values = map(repeat, self._own.unpack(self.own)[::2])
        self._tags_code = places.tags_code

    @property
    def has_keys(self) -> bool:
        """Whether its sends are found by more than their unique keys."""
        return self._keys is not None

    def fits(self, header: bytes) -> bool:
        """Whether a header, which is as long, has the same fixed bytes."""
        return self._row.unpack(header)[::2] == self._fixed

    def frames(self, frames: memoryview, body_size: int) -> Columns:
        """The columns of frames that are as long as each other, each with so many bytes of body."""
        return list(zip(*_frame(self._format, body_size).iter_unpack(frames), strict=True))

    def headers(self, data: memoryview, places: Iterable[int]) -> Columns:
        """The columns of headers, which are as long as they should be, at these places."""
        unpack = self._row.unpack_from
        return list(zip(*[unpack(data, at) for at in places], strict=True))

    def strangers(self, columns: Columns, prefix: bytes = b"") -> list[int]:
        """Which rows have other fixed bytes; `prefix`: that of frames, if these are some."""
        fixed = (prefix + self._fixed[0], *self._fixed[1:])
        count = len(columns[0])
        counts = list(map(tuple.count, columns[::2], fixed))
        if counts == [count] * len(fixed):
            return []
        odd = [
            pair for pair, found in zip(zip(columns[::2], fixed, strict=True), counts, strict=True) if found != count
        ]
        return sorted({at for column, text in odd for at, found in enumerate(column) if found != text})

    def read(self, columns: Columns) -> Sent | None:
        """What the columns say; None if there is something else in the place of a value."""
        opaques, queue_ids, born = [columns[number] for number in self._numbers]
        values, unique_keys = [columns[number] for number in self._values], columns[self._unique]
        if not _are_opaques(b"".join(opaques), len(opaques[0])) or not b"".join(unique_keys).isalnum():
            return None
        if b"".join(chain.from_iterable(values)).translate(None, _PLAIN):
            return None
        try:
            topics = list(map(_topic, columns[self._topic]))
            ids, times = list(map(_number, queue_ids)), list(map(_number, born))
        except ValueError:
            return None
        own = chain.from_iterable(zip(self._before_values, values, strict=True))
        return Sent(
            topics,
            ids,
            times,
            opaques,
            list(map(self._own.pack, *own, self._behind_values)),
            unique_keys,
            () if self._keys is None else columns[self._keys],
            [self._tags_code] * len(ids),
        )


def _row_format(spans: Sequence[Span], size: int) -> str:
    """Of a Struct that has what is between the spans and what is in them in turns."""
    edges = [0, *chain.from_iterable(spans), size]
    return "".join(f"{end - begin}s" for begin, end in pairwise(edges))


@lru_cache(_KNOWN_FRAMES)
def _frame(row: str, body_size: int) -> Struct:
    """The first field is longer by the frame's prefix. Bodies that are long are left out."""
    first, _, others = row.partition("s")
    kind = "s" if body_size <= COPIED_BYTES else "x"
    return Struct(f"{PREFIX_BYTES + int(first)}s{others}{body_size}{kind}")


class _Numbers(dict[bytes, int]):
    """Texts that were read as numbers, of which there are few at a time."""

    def __missing__(self, text: bytes) -> int:
        if not text.isdigit() or (text[0] == _ZERO and len(text) > 1):
            raise ValueError(f"no number: {text!r}")
        if len(self) >= _KNOWN_NUMBERS:
            self.clear()
        number = self[text] = int(text)
        return number


class _Topics(dict[bytes, str]):
    """Texts that were read as topics: the same text is the same object."""

    def __missing__(self, text: bytes) -> str:
        if text.translate(None, _PLAIN):
            raise ValueError(f"no plain topic: {text!r}")
        if len(self) >= _KNOWN_TOPICS:
            self.clear()
        topic = self[text] = intern(text.decode())
        return topic


_number: Final = _Numbers().__getitem__
_topic: Final = _Topics().__getitem__


def _are_opaques(text: bytes, width: int) -> bool:
    """Whether these texts, one behind the other, are numbers that an opaque may be; those near the largest are not."""
    firsts = text[::width]
    return text.isdigit() and (width == 1 or b"0" not in firsts) and (width < 10 or not firsts.strip(b"1"))


# -------------------------------------------------------------------------------------------------------------- layouts


class Places(NamedTuple):
    """Where values stand: topic and numbers in the header, values of properties in `own` and in the header."""

    topic: Span
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
    topic, queue_id, born, text = (pattern.search(header) for pattern in _FIELDS[header[:12]])
    sent: SendMessageHeader = sample.send_header
    if (
        topic is None
        or topic[1].decode() != sent.topic
        or opaque is None
        or queue_id is None
        or born is None
        or text is None
    ):
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
        topic.span(1),
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
    for begin, end in (places.topic, *places.values.values()):
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
        sample.send_header,
        topic=_other_text(header[slice(*places.topic)]).decode(),
        queue_id=numbers[1],
        born_timestamp=numbers[2],
        properties=own.decode()[: len(sample.send_header.properties)],
    )
    return msgspec.structs.replace(sample, opaque=numbers[0], send_header=sent)


def _other_number(digits: bytes) -> bytes:
    return bytes(ord("1") if digit == ord("0") else ord("0") for digit in digits)


def _other_text(text: bytes | bytearray) -> bytes:
    return bytes(ord("b") if byte == ord("a") else ord("a") for byte in text)
