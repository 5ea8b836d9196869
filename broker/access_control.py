"""The access control of a broker, wired from its configuration: the gate, and the processors that manage accounts."""

from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.wiring import Serves


class AccessControl:
    """The access control of one broker and of its embedded name server. `gate` None: every request is permitted."""

    def __init__(self, config: DaemonConfig) -> None:
        self._config = config
        self.gate: Gate | None = None
        self.namesrv_gate: Gate | None = None

    def __repr__(self) -> str:
        return f"<AccessControl {self.gate!r}>"

    def processors(self) -> tuple[tuple[str, Serves], ...]:
        """Return the processors, each with the name of its pool."""
        return ()
