"""GET_ALL_DELAY_OFFSET (45): the delivered offset of each delay level.

Source: docs/reference/wire.md, "Delayed messages".
"""

from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class DelayOffsetProcessor:
    """Lists the delay offsets of one broker."""

    def __init__(self, offsets: DelayOffsetTable) -> None:
        self._offsets = offsets

    def __repr__(self) -> str:
        return f"<DelayOffsetProcessor {self._offsets!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.GET_ALL_DELAY_OFFSET: self.list_all}

    def list_all(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_ALL_DELAY_OFFSET (45)."""
        return RemotingCommand.response(body=self._offsets.encode_now())
