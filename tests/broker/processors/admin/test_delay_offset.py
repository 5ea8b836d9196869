"""GET_ALL_DELAY_OFFSET (45): the delivered offsets of the delay levels."""

from pathlib import Path

from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.processors.admin.delay_offset import DelayOffsetProcessor
from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import broker_parts


async def test_the_offset_of_every_delivered_level_is_returned(tmp_path: Path) -> None:
    """The current offsets, flushed or not, in the format of the file; an empty table, too."""
    with broker_parts(tmp_path) as parts:
        offsets = DelayOffsetTable(10_000, parts.clock)
        parts.serve(DelayOffsetProcessor(offsets).handlers())
        peer = parts.peer()
        response = peer.call(RemotingCommand.request(RequestCode.GET_ALL_DELAY_OFFSET))
        assert (response.code, DelayOffsets.decode(response.body).offset_table) == (0, {})
        offsets.advance(3, 20, 1 << 60)
        response = peer.call(RemotingCommand.request(RequestCode.GET_ALL_DELAY_OFFSET))
        assert bytes(response.body).endswith(b'"offsetTable":{3:20}}')
