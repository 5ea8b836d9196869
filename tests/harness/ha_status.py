"""The recorded states of replication: tests/golden/ha."""

from pathlib import Path
from typing import Final

import msgspec

PATH: Final = Path(__file__).resolve().parents[1] / "golden" / "ha" / "haStatus-5.3.3.json"


class RecordedState(msgspec.Struct, frozen=True):
    """A body of GET_BROKER_HA_STATUS (907), and what RocketMQ's tool printed for it from `{broker}`, in UTC."""

    case: str
    body: str
    output: str


def recorded_states() -> list[RecordedState]:
    """Return the states of a master, of its slave, and of a master with a slave that is behind."""
    return msgspec.json.decode(PATH.read_bytes(), type=list[RecordedState])
