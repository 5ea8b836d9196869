"""Refused connections and frames of replicas: counted by reason, and logged within limits.

Any machine that reaches the port can cause a line, so a reason is logged at most once a minute for each host.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

LOG_INTERVAL_S: Final = 60.0
REMEMBERED: Final = 256
"""Pairs of reason and host whose last line is remembered."""

log = logging.getLogger(__name__)


class Refused:
    """The refusals of one port. `counts`: by reason, since the start; it may be shared with another part."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._now_s = now_s
        self._logged: dict[tuple[str, str], float] = {}

    def __repr__(self) -> str:
        return f"<Refused {dict(self.counts)}>"

    def note(self, reason: str, host: str, line: str) -> None:
        """Count a refusal, and log `line` unless this host had one for the same reason a moment ago."""
        self.counts[reason] += 1
        if self.is_due(reason, host):
            log.warning("replica refused host=%s %s so_far=%d", host, line, self.counts[reason])

    def is_due(self, reason: str, host: str) -> bool:
        """Return whether a line may be logged for this reason and host, which is then the last one for a while."""
        key, now_s = (reason, host), self._now_s()
        if now_s - self._logged.get(key, -LOG_INTERVAL_S) < LOG_INTERVAL_S:
            return False
        if len(self._logged) >= REMEMBERED:
            self._logged.clear()
        self._logged[key] = now_s
        return True
