"""The block of a store whose node leads."""

from contextlib import suppress
from pathlib import Path

from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.stores import message, opened

SEGMENT_BYTES = 1 << 12


def test_a_blocked_store_takes_messages_only_while_the_block_is_lifted(tmp_path: Path) -> None:
    """Also after an error within the context; the reason is shown to operators."""
    with opened(tmp_path) as it:
        block = it.store.leader_block
        block.set("one copy")
        assert "one copy" in it.store.flags.reasons()
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        with suppress(ZeroDivisionError), block.lifted():
            assert it.put(message(b"lifted"))[0].status is PutStatus.PUT_OK
            raise ZeroDivisionError
        assert it.put(message())[0].status is PutStatus.SERVICE_NOT_AVAILABLE
        block.set("")
        assert it.put(message(b"open"))[0].status is PutStatus.PUT_OK
        assert it.bodies() == [b"lifted", b"open"]


def test_the_kept_room_of_a_segment_is_for_records_of_terms(tmp_path: Path) -> None:
    """A message that would need it begins the next segment; a record of a term does not. It is at most a quarter."""
    with opened(tmp_path, mapped_file_size_commit_log=SEGMENT_BYTES) as it:
        it.store.leader_block.keep_room(SEGMENT_BYTES)
        body = bytes(100)
        put = it.put(message(body))[0]
        while put.physical_offset + 2 * put.size < SEGMENT_BYTES * 3 // 4:
            put = it.put(message(body))[0]
        assert put.physical_offset < SEGMENT_BYTES
        assert SEGMENT_BYTES - put.physical_offset - put.size > 3 * put.size
        with it.store.leader_block.lifted():
            assert it.put(message(body))[0].physical_offset == put.physical_offset + put.size
        assert it.put(message(body))[0].physical_offset == SEGMENT_BYTES
