"""Send requests encoded before the run, in one block of memory; each pass over the block patches three numbers, and the
signature of each frame if there are credentials (clients/mqbench/signed_frames.py).

    block      frame 0 | frame 1 | ... | frame n-1 | again from the start
    frame      the request of a Java client: JSON header, UNIQ_KEY, one key, WAIT, TAGS, body
    patched    born time            13 digits, the time at which the frame is sent
               opaque               10 digits: the upper ones count the rounds, the lower ones are the frame's number
               UNIQ_KEY             8 of its 32 digits count the rounds; the others identify block, frame and message

All patched fields have a fixed width and are the same for all frames that are sent together
(clients.mqbench.in_flight). A test compares each frame with a newly encoded request. Source: docs/reference/wire.md,
"Send".
"""

import os
from typing import Final

import msgspec
import numpy as np

from skylarkmq.clients.mqbench.histogram import Ints
from skylarkmq.clients.mqbench.in_flight import Field
from skylarkmq.clients.mqbench.signed_frames import SignedBlock, SignedFrame, sign
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import BatchRecord, encode_batch
from skylarkmq.protocol.serialize import encode_command

GROUP: Final = "mqbench"
TAG: Final = "TagA"
FIRST_OPAQUE: Final = 1_000_000_000  # ten digits; twice as much still fits into 31 bits
OPAQUE_DIGITS: Final = 10
FIRST_BORN_MS: Final = 10**12
BORN_DIGITS: Final = 13
ROUND_DIGITS: Final = 8
UNIQ_BEFORE_ROUND: Final = 16


class Target(msgspec.Struct, frozen=True):
    """A queue to send to."""

    topic: str
    queue_id: int
    broker_name: str


class Message(msgspec.Struct, frozen=True):
    """The numbers of one frame: block, frame, round, and born time."""

    block: int
    number: int
    round: int
    born_ms: int


class Block:
    """Frames for one connection, cycling over `targets`, with `batch` messages each.

    `number` (16 bits) identifies it.
    """

    def __init__(
        self,
        number: int,
        targets: list[Target],
        frames: int,
        size: int,
        batch: int = 1,
        credentials: Credentials | None = None,
    ) -> None:
        self.frames = frames
        self.batch = batch
        self.opaque_step = 10 ** len(str(frames - 1))
        opaque_digits = OPAQUE_DIGITS - len(str(frames - 1))
        body = os.urandom(size)
        texts = [
            encode(
                targets[n % len(targets)],
                Message(number, n, 0, FIRST_BORN_MS),
                self.opaque_step,
                body,
                batch,
                credentials,
            )
            for n in range(frames)
        ]
        self.ends: Ints = np.concatenate(([0], np.cumsum([len(text) for text in texts])))
        self._bytes = bytearray(b"".join(texts))
        self.view = memoryview(self._bytes)
        starts: Ints = self.ends[:-1]
        positions = [self._fields(text) for text in texts]
        born, opaques, rounds = (np.array(column, np.int64) for column in zip(*positions, strict=True))
        self._born = Field(self._bytes, starts + born, BORN_DIGITS)
        self._opaque = Field(self._bytes, starts + opaques, opaque_digits)
        self._rounds = Field(self._bytes, (starts[:, None] + rounds).ravel(), ROUND_DIGITS)
        self._most_rounds = FIRST_OPAQUE // self.opaque_step
        self._signed = None if credentials is None else SignedFields(self._bytes, starts, texts, batch, credentials)

    def __repr__(self) -> str:
        return f"<Block {self.frames} frames, {len(self._bytes)} bytes>"

    def patch(self, first: int, end: int, round_: int, born_ms: int) -> int:
        """Patch frames `first` to `end` for a round and a born time; return the opaque of frame 0 in that round."""
        round_ %= self._most_rounds
        opaque: int = FIRST_OPAQUE + round_ * self.opaque_step
        born, rounds = b"%013d" % born_ms, b"%08X" % round_
        self._born.fill(first, end, born)
        self._opaque.fill(first, end, b"%d" % (opaque // self.opaque_step))
        self._rounds.fill(first * self.batch, end * self.batch, rounds)
        if self._signed is not None:
            self._signed.fill(first, end, born, rounds)
        return opaque

    def bytes_of(self, first: int, end: int) -> memoryview:
        """Return the bytes of frames `first` to `end`."""
        return self.view[self.ends[first] : self.ends[end]]

    def _fields(self, text: bytes) -> tuple[int, int, list[int]]:
        """Return the positions in a frame of the born time, the opaque, and the rounds in its unique ids."""
        header_end = 8 + int.from_bytes(text[5:8], "big")
        uniques = []
        at = 0
        for _ in range(self.batch):
            at = text.index(b"UNIQ_KEY", at) + len("UNIQ_KEY")
            at += 1 if self.batch > 1 else len(r"\u0001")
            uniques.append(at + UNIQ_BEFORE_ROUND)
        return text.index(b'"g":"') + 5, text.rindex(b'"opaque":', 0, header_end) + 9, uniques


class SignedFields:
    """The signed fields of a block that are patched, and the signatures. In a batch, the rounds are in the body."""

    def __init__(
        self, block: bytearray, starts: Ints, texts: list[bytes], batch: int, credentials: Credentials
    ) -> None:
        frames = [SignedFrame(text) for text in texts]
        self._block = SignedBlock(block, starts, frames, credentials)
        self._born = self._block.field(np.array([frame.position("g") for frame in frames]), BORN_DIGITS)
        rounds = [frame.position("i") + round_in(frame.fields["i"]) for frame in frames] if batch == 1 else []
        self._rounds = self._block.field(np.array(rounds), ROUND_DIGITS) if rounds else None

    def __repr__(self) -> str:
        return f"<SignedFields {self._block!r}>"

    def fill(self, first: int, end: int, born: bytes, rounds: bytes) -> None:
        """Patch the fields of the frames `first` to `end`, and sign these frames."""
        self._born.fill(first, end, born)
        if self._rounds is not None:
            self._rounds.fill(first, end, rounds)
        self._block.sign(first, end)


def round_in(text: str) -> int:
    """Return the position of the round in the properties of a message."""
    return text.index("UNIQ_KEY\x01") + len("UNIQ_KEY\x01") + UNIQ_BEFORE_ROUND


def encode(
    target: Target,
    message: Message,
    opaque_step: int,
    body: bytes,
    batch: int = 1,
    credentials: Credentials | None = None,
) -> bytes:
    """Return one frame, encoded by the protocol's own encoder, and signed if there are credentials."""
    first = message.number * batch
    texts = [properties(message, first + number) for number in range(batch)]
    header = SendMessageV2Header(
        producer_group=GROUP,
        topic=target.topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=target.queue_id,
        sys_flag=0,
        born_timestamp=message.born_ms,
        flag=0,
        properties="WAIT\x01true" if batch > 1 else texts[0],
        reconsume_times=0,
        unit_mode="false",
        batch="true" if batch > 1 else "false",
        bname=target.broker_name,
    )
    if batch > 1:
        body = encode_batch(BatchRecord(0, body, text.encode()) for text in texts)
    code = RequestCode.SEND_BATCH_MESSAGE if batch > 1 else RequestCode.SEND_MESSAGE_V2
    command = RemotingCommand.request(code, header, body)
    command.opaque = FIRST_OPAQUE + message.round * opaque_step + message.number
    command.language = "JAVA"
    sign(command, credentials)
    return encode_command(command)


def properties(message: Message, member: int) -> str:
    """Return the property string of a frame's message at index `member`."""
    unique = f"7F000001{os.getpid() & 0xFFFF:04X}{message.block & 0xFFFF:04X}{message.round:08X}{member:08X}"
    return f"KEYS\x01k{member}\x02UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02TAGS\x01{TAG}"
