"""Pages of long lists: which rows a request shows."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request

PAGE_ROWS: Final = 50

T = TypeVar("T")


class Paging(NamedTuple):
    """One page of a list with `total` rows; `number` counts from 1. `parameter`: its name in the address."""

    number: int
    total: int
    parameter: str = "page"
    rows: int = PAGE_ROWS

    @property
    def pages(self) -> int:
        """Return how many pages the list has, at least 1."""
        return max(-(-self.total // self.rows), 1)

    @property
    def start(self) -> int:
        """Return the index of the first row."""
        return (self.number - 1) * self.rows

    @property
    def stop(self) -> int:
        """Return the index after the last row."""
        return min(self.start + self.rows, self.total)

    def of(self, rows: Sequence[T]) -> Sequence[T]:
        """Return the rows of this page."""
        return rows[self.start : self.stop]


def paging(request: Request, total: int, parameter: str = "page") -> Paging:
    """Return the page that a request asks for: the first without a valid number, at most the last one."""
    text = request.query_params.get(parameter, "")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else 1
    last = Paging(1, total, parameter).pages
    return Paging(min(max(number, 1), last), total, parameter)
