"""The page of request and response codes, from `protocol/codes.py` and the tables in docs/reference/wire.md."""

import re
from collections.abc import Iterator
from typing import Final

from docs.hooks.reference_sections import WIRE, link_to
from skylarkmq.protocol.codes import LanguageCode, RequestCode, ResponseCode

TEXT: Final = """# Codes

*This page is generated from the code.*

[On the wire](wire.md#codes) says which of the requests brokers, name servers and clients serve.
"""


def page() -> str:
    """Return the page in Markdown."""
    places, meanings = request_sections(), response_meanings()
    requests = (f"| {one.value} | `{one.name}` | {places.get(one.value) or described(one)} |" for one in RequestCode)
    responses = (f"| {one.value} | `{one.name}` | {meanings.get(one.value, '')} |" for one in ResponseCode)
    languages = (f"| {one.value} | `{one.name}` |" for one in LanguageCode)
    return "\n".join(
        (
            TEXT,
            "## Requests\n\n| Code | Name | Section |\n|---|---|---|",
            *requests,
            "\n## Responses\n\n| Code | Name | Meaning |\n|---|---|---|",
            *responses,
            "\n## Languages\n\nThe language of a client, in the header of its requests.\n\n| Code | Name |\n|---|---|",
            *languages,
            "",
        )
    )


def request_sections() -> dict[int, str]:
    """Return links to the sections about each request."""
    found: dict[int, str] = {}
    for codes, _, section in rows("Requests of this version:\n\n"):
        for first, last in re.findall(r"(\d+)(?:–(\d+))?", codes):
            found |= dict.fromkeys(range(int(first), int(last or first) + 1), section)
    return found


def described(code: RequestCode) -> str:
    """Return the place of a request that the table does not have: another section, or our client alone."""
    client_only = "not served; sent to RocketMQ's brokers by [mqadmin](../run/mqadmin.md)"
    return link_to(code.name).removeprefix(": ") or client_only


def response_meanings() -> dict[int, str]:
    """Return the meaning of each response code that docs/reference/wire.md explains."""
    meanings: dict[int, str] = {}
    for codes, _, meaning in rows("Response codes:\n\n"):
        meanings |= {int(code): meaning for code in re.findall(r"\d+", codes)}
    return meanings


def rows(title: str) -> Iterator[list[str]]:
    """Yield the cells of the table below a line of docs/reference/wire.md, with links that work from another page."""
    _, _, rest = WIRE.read_text().partition(title)
    for line in rest.partition("\n\n")[0].splitlines()[2:]:
        yield [cell.strip().replace("](#", "](wire.md#") for cell in line.strip("|").split("|")]
