"""Patched frames, compared with newly encoded ones."""

import pytest

from skylarkmq.clients.mqbench.prepared_frames import FIRST_OPAQUE, Block, Message, Target, encode
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import decode_batch, decode_properties
from skylarkmq.protocol.serialize import decode_command
from skylarkmq.protocol.signature import SigningKey, signed_parts
from skylarkmq.protocol.stream import CommandDecoder
from tests.harness.golden import transcripts

BORN_MS = 1_795_224_552_508
TARGETS = [Target("bench", queue_id, "broker-a") for queue_id in range(12)]  # numbers of one digit and of two


def body_of(frame: bytes) -> bytes:
    (decoded,) = FrameDecoder().feed(memoryview(frame))
    return bytes(decoded[2])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("round_", [0, 1, 4711, 9_999_999])
def test_a_patched_frame_equals_a_newly_encoded_one(batch: int, round_: int) -> None:
    """Opaque, born time and unique ids are new; all other bytes are unchanged."""
    block = Block(7, TARGETS, frames=50, size=100, batch=batch)
    opaque = block.patch(0, 50, round_, BORN_MS)
    assert opaque == FIRST_OPAQUE + round_ * 100
    for number in range(50):
        frame = bytes(block.bytes_of(number, number + 1))
        body = body_of(frame) if batch == 1 else bytes(decode_batch(body_of(frame))[0].body)
        message = Message(7, number, round_, BORN_MS)
        assert frame == encode(TARGETS[number % 12], message, 100, body, batch)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("token", [None, "a-token"])
def test_a_patched_frame_has_the_signature_of_its_content(batch: int, token: str | None) -> None:
    """It equals a newly signed frame; frames in flight keep their signatures."""
    credentials = Credentials("loader", "a-secret-key", token)
    block = Block(7, TARGETS, frames=50, size=100, batch=batch, credentials=credentials)
    for round_ in (4711, 4712):
        before = bytes(block.bytes_of(40, 50))
        block.patch(0, 40, round_, BORN_MS + round_)
        assert bytes(block.bytes_of(40, 50)) == before
        for number in range(40):
            frame = bytes(block.bytes_of(number, number + 1))
            body = body_of(frame) if batch == 1 else bytes(decode_batch(body_of(frame))[0].body)
            message = Message(7, number, round_, BORN_MS + round_)
            assert frame == encode(TARGETS[number % 12], message, 100, body, batch, credentials)
            (command,) = CommandDecoder().feed_commands(memoryview(frame))
            signed = signed_parts(command)
            assert signed is not None
            assert signed.access_key == "loader"
            assert SigningKey("a-secret-key").has_signed(signed, command.body)


def test_only_frames_that_are_sent_are_patched() -> None:
    """The bytes of frames in flight do not change."""
    block = Block(1, TARGETS, frames=20, size=10)
    before = bytes(block.bytes_of(0, 5)), bytes(block.bytes_of(9, 20))
    block.patch(5, 9, 3, BORN_MS)
    assert (bytes(block.bytes_of(0, 5)), bytes(block.bytes_of(9, 20))) == before


def test_rounds_wrap_before_opaques_exceed_31_bits() -> None:
    """A run can last arbitrarily long."""
    block = Block(1, TARGETS, frames=100, size=10)
    assert block.patch(0, 1, 9_999_999, BORN_MS) == 1_999_999_900
    assert block.patch(0, 1, 10_000_000, BORN_MS) == FIRST_OPAQUE


def test_unique_ids_depend_on_frame_round_block_and_member() -> None:
    """All messages of a run have different ids."""
    seen = set()
    for block in (Block(number, TARGETS, frames=4, size=10, batch=2) for number in (1, 2)):
        for round_ in range(3):
            block.patch(0, 4, round_, BORN_MS)
            for number in range(4):
                for record in decode_batch(body_of(bytes(block.bytes_of(number, number + 1)))):
                    seen.add(decode_properties(bytes(record.properties).decode())["UNIQ_KEY"])
    assert len(seen) == 2 * 3 * 4 * 2


def test_a_frame_equals_the_request_of_a_java_client() -> None:
    """Field by field in the captured order: same names, and same values unless they depend on the message."""
    block = Block(1, [Target("WireTopic", 0, "broker-a")], frames=1, size=11)
    (ours,) = FrameDecoder().feed(memoryview(bytes(block.bytes_of(0, 1))))
    captured = next(
        frame for frame in transcripts() if frame.name == "05 SEND_MESSAGE_V2 request" and frame.dialect == "JSON"
    )
    (java,) = FrameDecoder().feed(memoryview(captured.raw))
    names = ["code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version"]
    for frame in (ours, java):
        text = bytes(frame[1])
        assert sorted(names, key=lambda name: text.index(b'"%b"' % name.encode())) == names
    ours_command, java_command = decode_command(ours), decode_command(java)
    assert ours_command is not None
    assert java_command is not None
    assert list(ours_command.ext_fields()) == list(java_command.ext_fields())
    header, other = ours_command.header(SendMessageV2Header), java_command.header(SendMessageV2Header)
    for name in ("topic", "default_topic", "default_topic_queue_nums", "sys_flag", "unit_mode", "batch", "bname"):
        assert getattr(header, name) == getattr(other, name)
    assert [*decode_properties(header.properties)] == [*decode_properties(other.properties)]
    assert len(decode_properties(header.properties)["UNIQ_KEY"]) == 32
