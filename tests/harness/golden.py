"""The frames and responses under tests/golden/wire, recorded from real RocketMQ."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

WIRE: Final = Path(__file__).resolve().parent.parent / "golden" / "wire"
ANSWERS: Final = "answers-4.9.8.json"


class GoldenFrame(msgspec.Struct, frozen=True):
    """A captured frame. `header`: its decoded header; `raw`: the whole frame with its length word."""

    scenario: str
    name: str
    connection: int
    direction: str
    dialect: str
    header: dict[str, Any]
    raw: bytes

    @property
    def header_bytes(self) -> bytes:
        return self.raw[8 : 8 + self._header_length]

    @property
    def body(self) -> bytes:
        return self.raw[8 + self._header_length :]

    @property
    def id(self) -> str:
        """Return the id for parametrized tests."""
        return f"{self.scenario}/{self.name}".replace(" ", "-")

    @property
    def _header_length(self) -> int:
        return int.from_bytes(self.raw[5:8], "big")


@cache
def transcripts() -> tuple[GoldenFrame, ...]:
    """Return every captured frame, by scenario, in order of time."""
    return tuple(frame for path in sorted(WIRE.glob("*.json")) if path.name != ANSWERS for frame in _frames(path))


@cache
def responses() -> dict[str, dict[str, Any]]:
    """Return the responses of 4.9.8 to single hand-made requests, by request."""
    loaded: dict[str, dict[str, Any]] = json.loads((WIRE / ANSWERS).read_bytes())
    return loaded


def bodies(request: str, kind: str) -> list[bytes]:
    """Return the non-empty bodies of the requests with this name. `kind`: request, response or oneway."""
    return [frame.body for frame in transcripts() if frame.name.split()[1:] == [request, kind] and frame.body]


def _frames(path: Path) -> Iterator[GoldenFrame]:
    transcript = json.loads(path.read_bytes())
    for frame in transcript["frames"]:
        yield GoldenFrame(
            transcript["scenario"],
            frame["name"],
            frame["conn"],
            frame["direction"],
            frame["serializeType"],
            frame["header"],
            bytes.fromhex(frame["hex"]),
        )
