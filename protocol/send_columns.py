"""Many sends of one read at once, as columns: what the first one means, those mean too that differ in values only.

What a producer sends one behind the other is the same header again and again, but for topic, opaque, born time, queue
id and the values of properties, which mostly have as many characters as the last time. So a header is understood once
(protocol.send_layout); of all those of its layout the values are cut out together.

Headers of other lengths, or with other fixed bytes, have another layout: queue ids of one and of two digits, another
tag. There may be a few of them in a read; the order of the sends stays. Whatever is not so is not for
this module: it finds nothing, and each frame is decoded for itself (protocol.stream).

`SendColumns` stands for its sends among the commands of a read; who cannot use it takes it `apart`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter, sub
from struct import Struct
from typing import Any, Final, TypeAlias

import msgspec

from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.send_command import DECODERS
from skylarkmq.protocol.send_layout import COPIED_BYTES, PREFIX_BYTES, Layout, Sent, find_layout

FEWEST: Final = 12
"""So many sends of one layout cost less together than one by one."""
_FOR_ANOTHER: Final = 8
"""So many more have to be there for each other layout."""

_BEGINNING: Final = Struct(">iI12s")
_LENGTH: Final = Struct(">i")
_KEY_BYTES: Final = 36
"""Of a header: its topic is not among them."""
_MOST_LAYOUTS: Final = 256
_MOST_ALIKE: Final = 8  # of them with one length and beginning
_MOST_LEFT_ALONE: Final = 62  # reads that are not looked at, after many in a row in which nothing was found


class SendColumns(RemotingCommand, gc=False):
    """Plain sends that came one behind the other. `body` is all their frames.

    `header` is the first one's; the others have the same flags and reconsume times. `samples` are properties of
    each layout that there is: where values stand in these, the others have others, of the same kind.
    """

    columns: Any = msgspec.field(name="(columns)", default=None)  # Sent
    bodies: Any = msgspec.field(name="(bodies)", default=())
    sample: Any = msgspec.field(name="(sample)", default=None)  # SendMessageHeader
    samples: Any = msgspec.field(name="(samples)", default=())
    decode_apart: Any = msgspec.field(name="(apart)", default=None)  # a protocol.stream.DecodeFrames

    def __len__(self) -> int:
        return len(self.columns.queue_ids)

    def apart(self) -> list[RemotingCommand]:
        """The same sends, decoded one by one."""
        commands: list[RemotingCommand] = []
        self.decode_apart(memoryview(self.body), 0, len(self.body), commands)
        return commands

    def drop_payload(self) -> None:
        """As RemotingCommand's."""
        super().drop_payload()
        self.bodies = ()


def apart(commands: Iterable[RemotingCommand]) -> list[RemotingCommand]:
    """The commands, those one by one that stand here as columns."""
    return list(
        chain.from_iterable(command.apart() if isinstance(command, SendColumns) else (command,) for command in commands)
    )


# ---------------------------------------------------------------------------------------------------------------- reads


Found: TypeAlias = tuple[Layout, Sequence[int], Sent]


class ColumnReader:
    """Reads columns; keeps the layouts that it found.

    Where sends do not look alike, to find that out costs more than to decode them. So a read in which nothing was found
    has the next two left alone, another one has six, and so on, until something is found again. (Of two producers who
    take turns the other one is next then.)
    """

    def __init__(self, decode_apart: Callable[[memoryview, int, int, list[RemotingCommand]], int]) -> None:
        self._decode_apart = decode_apart
        self._layouts: dict[tuple[int, bytes], list[Layout]] = {}
        self._left_alone = 0  # so many reads more
        self._in_vain = 0  # and so many after the next one in which nothing is found

    def __repr__(self) -> str:
        return f"<ColumnReader layouts={len(self._layouts)}>"

    def decode(self, data: memoryview, start: int, max_frame_bytes: int, commands: list[RemotingCommand]) -> int:
        """A pass over whole frames (stream.DecodeFrames), in which many sends that look alike are one command."""
        end = len(data)
        if self._left_alone:
            self._left_alone -= 1
            return self._decode_apart(data, start, max_frame_bytes, commands)
        while end - start >= _BEGINNING.size and _may_be_many(data, start):
            columns, behind = self.read(data, start, max_frame_bytes)
            if columns is not None:
                commands.append(columns)
                start = behind
                continue
            start = self._decode_apart(data[:behind], start, max_frame_bytes, commands)
            if start < behind:
                return start
        return self._decode_apart(data, start, max_frame_bytes, commands) if start < end else start

    def read(self, data: memoryview, start: int, max_frame_bytes: int) -> tuple[SendColumns | None, int]:
        """The sends that stand at `start` and behind it, if they are as many as they may be and look alike; and where
        they end, or where it is worth trying again when what stands before is decoded."""
        command, behind, is_worth = self._read_alike(data, start, max_frame_bytes), 0, True
        if command is None:
            command, behind, is_worth = self._read_any(data, start, max_frame_bytes)
        if command is None:
            if is_worth:
                self._in_vain = self._left_alone = min(2 * self._in_vain + 2, _MOST_LEFT_ALONE)
            return None, behind
        command.decode_apart = self._decode_apart
        self._in_vain = 0
        return command, start + len(command.body)

    def _read_alike(self, data: memoryview, start: int, max_frame_bytes: int) -> SendColumns | None:
        """The sends up to the end of the data, if all of them are as long as each other and have one layout."""
        length, word, begin = _BEGINNING.unpack_from(data, start)
        size, body_at = 4 + length, start + PREFIX_BYTES + word
        body_size = start + size - body_at
        if begin not in DECODERS or body_size < 0 or size > max_frame_bytes:
            return None
        end = len(data) - (len(data) - start) % size
        last = end - size
        if (last - start) // size < FEWEST - 1 or data[last : last + _BEGINNING.size] != data[
            start : start + _BEGINNING.size
        ]:
            return None
        layout = self._layout_of(bytes(data[start + PREFIX_BYTES : body_at]))
        if layout is None:
            return None
        columns = layout.frames(data[start:end], body_size)
        sent = None if layout.strangers(columns, bytes(data[start : start + PREFIX_BYTES])) else layout.read(columns)
        if sent is None:
            return None
        command = SendColumns(code=layout.code, columns=sent, sample=layout.sample, samples=[layout.own])
        command.body = data[start:end]
        command.bodies = (
            columns[-1]
            if body_size <= COPIED_BYTES
            else [data[at : at + body_size] for at in range(body_at, end, size)]
        )
        return command

    def _read_any(self, data: memoryview, start: int, max_frame_bytes: int) -> tuple[SendColumns | None, int, bool]:
        """The same of sends of any length and of some layouts; else where it is worth trying again, and whether there
        was something to find."""
        headers, bodies, ends = cut_frames(data, start, max_frame_bytes)
        if not ends:
            return None, _behind_others(data, start), False
        behind, is_worth = ends[-1], len(ends) >= FEWEST
        while len(ends) >= FEWEST:
            found = self._layouts_of(data, headers, bodies)
            if isinstance(found, int):
                headers, bodies, ends = headers[:found], bodies[:found], ends[:found]
                continue
            command = _joined(found)
            if command is None:
                break
            command.bodies = [data[begin:end] for begin, end in zip(bodies, ends, strict=True)]
            command.body = data[start : ends[-1]]
            return command, ends[-1], True
        return None, behind, is_worth

    def _layouts_of(self, data: memoryview, headers: list[int], bodies: list[int]) -> list[Found] | int:
        """Each layout that there is, with its members and their columns. Else how many are before the first that has
        none; 0 if they have too many."""
        found: list[Found] = []
        todo = _by_length(headers, bodies)
        while todo:
            if FEWEST + (len(found) + len(todo) - 1) * _FOR_ANOTHER > len(headers):
                return 0
            members = todo.pop()
            first = members[0]
            layout = self._layout_of(bytes(data[headers[first] : bodies[first]]))
            if layout is None:
                return first
            columns = layout.headers(data, map(headers.__getitem__, members))
            if strangers := layout.strangers(columns):
                todo += _parted(members, strangers)
                continue
            sent = layout.read(columns)
            if sent is None:
                return first
            found.append((layout, members, sent))
        return found

    def _layout_of(self, header: bytes) -> Layout | None:
        """The layout of a header."""
        key = len(header), header[:_KEY_BYTES]
        known = self._layouts.get(key, ())
        for layout in known:
            if layout.fits(header):
                return layout
        found = find_layout(header)
        if found is not None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = [found, *known[: _MOST_ALIKE - 1]]
        return found


def _may_be_many(data: memoryview, start: int) -> bool:
    """Whether there is room for enough frames half as long as the first one."""
    length: int = _LENGTH.unpack_from(data, start)[0]
    return length * (FEWEST // 2) <= len(data) - start


def _behind_others(data: memoryview, start: int) -> int:
    """Where the next frame begins that may be a send; the end of the data if there is none, or no frame."""
    at = start
    while len(data) - at >= _BEGINNING.size:
        length, _, begin = _BEGINNING.unpack_from(data, at)
        if begin in DECODERS:
            return at if at > start else len(data)  # or it is not whole
        if length <= 0:
            break
        at += 4 + length
    return len(data)


def cut_frames(data: memoryview, start: int, max_frame_bytes: int) -> tuple[list[int], list[int], list[int]]:
    """Of frames one behind the other, whose headers begin as the first one's, which is a plain send's: where their
    headers begin, their bodies, and where they end."""
    headers: list[int] = []
    bodies: list[int] = []
    ends: list[int] = []
    beginning, end = _BEGINNING.unpack_from, len(data)
    last = end - _BEGINNING.size
    usual = bytes(data[start + PREFIX_BYTES : start + _BEGINNING.size])
    if usual not in DECODERS:
        return headers, bodies, ends
    while start <= last:
        length, word, begin = beginning(data, start)
        header_at = start + PREFIX_BYTES
        body_at = header_at + word
        size = 4 + length
        if not body_at <= start + size <= end or begin != usual or size > max_frame_bytes:
            break
        headers.append(header_at)
        bodies.append(body_at)
        start += size
        ends.append(start)
    return headers, bodies, ends


def _by_length(headers: list[int], bodies: list[int]) -> list[Sequence[int]]:
    """The positions of headers that are equally long."""
    positions: dict[int, list[int]] = {}
    for at, length in enumerate(map(sub, bodies, headers)):
        positions.setdefault(length, []).append(at)
    return list(positions.values())


def _parted(members: Sequence[int], strangers: list[int]) -> list[Sequence[int]]:
    """Strangers and others apart."""
    strange = set(strangers)
    others = [member for at, member in enumerate(members) if at not in strange]
    return [[members[at] for at in strangers], others]


def _joined(found: list[Found]) -> SendColumns | None:
    """The command of sends whose layouts may differ; None if more than what stands in columns does."""
    first, _, sent = found[0]
    if len(found) > 1:
        if len({_common(layout) for layout, _, _ in found}) > 1:
            return None
        sent = _merged([members for _, members, _ in found], [sent for *_, sent in found])
    samples = [layout.own for layout, _, _ in found]
    return SendColumns(code=first.code, columns=sent, sample=first.sample, samples=samples)


def _merged(members: list[Sequence[int]], parts: list[Sent]) -> Sent:
    """Columns that have the rows of these at the places of their members."""
    places = [0] * sum(map(len, members))
    for number, at in enumerate(chain.from_iterable(members)):
        places[at] = number
    in_order: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(*places)
    columns = (list(chain.from_iterable(column)) for column in zip(*parts, strict=True))
    return Sent(*(list(in_order(column)) if column else [] for column in columns))


def _common(layout: Layout) -> tuple[object, ...]:
    """What sends that go together must have in common."""
    sent = layout.sample
    return sent.flag, sent.sys_flag, sent.reconsume_times, layout.has_keys
