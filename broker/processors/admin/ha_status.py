"""State of replication on request: GET_BROKER_HA_STATUS (907) of RocketMQ 5.

A master without replication responds as one of RocketMQ's without slaves. Source: docs/reference/wire.md, "State
of replication".
"""

from collections.abc import Callable

from skylarkmq.broker.ha.status import ReplicationStatus, Role, runtime_info
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class HaStatusProcessor:
    """Serves the state of one node. `status` returns None without replication, `log_end` the end of the log."""

    def __init__(self, status: Callable[[], ReplicationStatus | None], log_end: Callable[[], int]) -> None:
        self._status = status
        self._log_end = log_end

    def __repr__(self) -> str:
        return f"<HaStatusProcessor {self._status()!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.GET_BROKER_HA_STATUS: self.report}

    def report(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_BROKER_HA_STATUS (907)."""
        end = self._log_end()
        status = self._status() or ReplicationStatus(role=Role.LEADER, end=end, committed=end)
        return RemotingCommand.response(body=runtime_info(status).encode())
