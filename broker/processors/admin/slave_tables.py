"""Tables of RocketMQ 5 that only slaves ask for: GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61) and
GET_ALL_MESSAGE_REQUEST_MODE (402).

POP is not part of this version, so the table of request modes is empty. Source: docs/reference/wire.md, "Tables of a
slave".
"""

from typing import Final

from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError

REQUEST_MODES: Final = b'{"messageRequestModeMap":{}}'


class SlaveTablesProcessor:
    """Serves the tables of one broker."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def __repr__(self) -> str:
        return f"<SlaveTablesProcessor {self._timers!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_check_point,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
        }

    def timer_check_point(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_TIMER_CHECK_POINT (60): the progress of the timers."""
        check = self._timers.check()
        if check is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return RemotingCommand.response(body=check.encode_fields())

    def timer_metrics(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_TIMER_METRICS (61): the number of pending timer messages for each topic."""
        if self._timers.check() is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "The timer message store is null")
        return RemotingCommand.response(body=self._timers.counts.encode_now())

    def request_modes(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_ALL_MESSAGE_REQUEST_MODE (402)."""
        return RemotingCommand.response(body=REQUEST_MODES)
