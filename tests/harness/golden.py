"""The frames and answers under tests/golden/wire, which real RocketMQ spoke."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

WIRE: Final = Path(__file__).resolve().parent.parent / "golden" / "wire"
ANSWERS: Final = "answers-4.9.8.json"


class GoldenFrame(msgspec.Struct, frozen=True):
    """One captured frame. `header` is its decoded header; `raw` the whole frame with its length word."""

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
        """For the parameters of tests."""
        return f"{self.scenario}/{self.name}".replace(" ", "-")

    @property
    def _header_length(self) -> int:
        return int.from_bytes(self.raw[5:8], "big")


@cache
def transcripts() -> tuple[GoldenFrame, ...]:
    """Every captured frame, scenario by scenario, in the order of time."""
    return tuple(frame for path in sorted(WIRE.glob("*.json")) if path.name != ANSWERS for frame in _frames(path))


@cache
def answers() -> dict[str, dict[str, Any]]:
    """Answers of 4.9.8 to single hand-made requests, by what was asked."""
    loaded: dict[str, dict[str, Any]] = json.loads((WIRE / ANSWERS).read_bytes())
    return loaded


def bodies(request: str, kind: str) -> list[bytes]:
    """The non-empty bodies of one request name; `kind`: request, response or oneway."""
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
