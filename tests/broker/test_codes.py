"""The requests that a whole broker serves are exactly those that docs/reference/wire.md lists.

A request without fields gets an error of its own; only an unknown code gets REQUEST_CODE_NOT_SUPPORTED (3).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.broker.app.in_process import running
from skylarkmq.protocol.codes import ResponseCode
from tests.harness.raw import RawClient

WIRE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "wire.md"
OF_NAME_SERVER: Final = "of the name server"
TO_CLIENTS: Final = {39, 40, 220, 221, 326}
"""Requests that the broker sends to clients."""
OPERATORS_ASK: Final = {
    18, 21, 25, 26, 43, 45, 60, 61, 200, 201, 202, 203, 204, 207, 208, 222, 223, 225, 300, 303, 305, 306, 307, 309,
    315, 316, 317, 321, 323, 324, 325, 328, 329, 351, 352, 402, 907,
}  # fmt: skip
"""Requests of mqadmin 4.9.7 and 5.3.3 for topics, groups, offsets, connections, messages, statistics and
replication."""
OPERATORS_ASK_NAMES: Final = {205, 318, 319, 327}
ASKED: Final = (*range(1, 1_000), *range(2_990, 3_020))


def documented() -> Iterator[tuple[int, bool]]:
    """Yield the codes of the table of requests, and whether a name server serves them."""
    table = WIRE.read_text().partition("\nRequests of this version:\n")[2].partition("\nAny other code")[0]
    for line in table.splitlines():
        cells = line.split("|")
        for first, last in re.findall(r"(\d+)(?:–(\d+))?", cells[1] if len(cells) > 2 else ""):
            for code in range(int(first), int(last or first) + 1):
                yield code, OF_NAME_SERVER in cells[2]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[set[int], set[int]]]:
    """The codes that a broker serves, and those that its name server serves."""
    with running(tmp_path_factory.mktemp("codes")) as broker:
        yield served_by(broker.address), served_by(broker.namesrv)


def served_by(address: str) -> set[int]:
    host, _, port = address.partition(":")
    with RawClient(host, int(port)) as client:
        responses = {code: client.call(code) for code in ASKED}
    return {code for code, response in responses.items() if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def test_the_served_requests_are_those_that_are_documented(served: tuple[set[int], set[int]]) -> None:
    """For the broker and for the name server."""
    of_broker = {code for code, is_of_names in documented() if not is_of_names}
    of_names = {code for code, is_of_names in documented() if is_of_names}
    assert served[0] == of_broker - TO_CLIENTS
    assert served[1] == of_names


def test_the_requests_of_the_official_tools_are_served(served: tuple[set[int], set[int]]) -> None:
    """All requests of the official tools' commands."""
    assert served[0] >= OPERATORS_ASK
    assert served[1] >= OPERATORS_ASK_NAMES
