"""Refusals because of a quota: the response, its count by scope and kind, and one log line per LOGGED_EVERY."""

import logging
from enum import Enum
from typing import Final

from skylarkmq.broker.remoting.admission import OVERLOAD
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

LOGGED_EVERY: Final = 1_000

Counts = dict[tuple[str, str], int]
"""Counts by scope and kind."""

log = logging.getLogger(__name__)


class Scope(Enum):
    """The kinds of keys that quotas apply to."""

    CLIENT = "client"
    ACCOUNT = "account"
    TOPIC = "topic"


class Refusals:
    """Counts refusals. `by_kind`: totals since the start."""

    def __init__(self) -> None:
        self.by_kind: Counts = {}

    def __repr__(self) -> str:
        return f"<Refusals {self.by_kind}>"

    def note(self, scope: Scope, kind: str, setting: str, most: int, key: str) -> str:
        """Count a refusal; return its remark."""
        count = self.by_kind.get((scope.value, kind), 0)
        self.by_kind[scope.value, kind] = count + 1
        remark = f"{setting}={most} of {scope.value} {key}"
        if count % LOGGED_EVERY == 0:
            log.warning("quota exceeded %s refused=%d", remark, count + 1)
        return f"{OVERLOAD}, {remark}"

    def error(self, scope: Scope, kind: str, setting: str, most: int, key: str) -> RequestError:
        """Count a refusal; return the error to raise."""
        return RequestError(ResponseCode.SYSTEM_BUSY, self.note(scope, kind, setting, most, key))


def setting_of(scope: Scope, kind: str) -> str:
    """Return the key of a quota, such as quotaClientBytesInPerSecond for client and bytes_in_per_second."""
    return f"quota{scope.value.title()}" + "".join(word.title() for word in kind.split("_"))
