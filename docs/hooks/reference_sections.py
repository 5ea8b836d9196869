"""The sections of docs/formats.md, for links from generated pages."""

import re
from functools import cache
from pathlib import Path
from typing import Final

FORMATS: Final = Path(__file__).parents[1] / "formats.md"
LISTS: Final = {"Settings at run time", "Codes"}
"""Sections that mention settings or codes only to list them."""


def link_to(name: str) -> str:
    """Return a link to the section that mentions a setting or a code most often; an empty text if none does."""
    counts = {title: len(re.findall(rf"\b{re.escape(name)}\b", text)) for title, text in sections()}
    title = max(counts, key=lambda section: counts[section])
    return f": [{title}](../formats.md#{anchor(title)})" if counts[title] else ""


@cache
def sections() -> tuple[tuple[str, str], ...]:
    """Return headings and texts, without the lists."""
    parts = re.split(r"^##? (.+)\n", FORMATS.read_text(), flags=re.MULTILINE)[1:]
    return tuple((title, text) for title, text in zip(parts[::2], parts[1::2], strict=True) if title not in LISTS)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
