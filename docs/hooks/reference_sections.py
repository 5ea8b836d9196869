"""The sections of the written pages of docs/reference that define the broker, for links from generated pages."""

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1] / "reference"
WIRE: Final = FOLDER / "wire.md"
PAGES: Final = (WIRE, FOLDER / "behaviour.md", FOLDER / "disk.md")
LISTS: Final = {"Settings at run time", "Codes"}
"""Sections that mention settings or codes only to list them."""


class Section(NamedTuple):
    """A section of a page: the name of the page's file, the heading, and the text up to the next heading."""

    page: str
    title: str
    text: str


def link_to(name: str) -> str:
    """Return a link to the section that mentions a setting or a code most often; an empty text if none does."""
    counts = {section: len(re.findall(rf"\b{re.escape(name)}\b", section.text)) for section in sections()}
    best = max(counts, key=lambda section: counts[section])
    return f": [{best.title}]({best.page}#{anchor(best.title)})" if counts[best] else ""


@cache
def sections() -> tuple[Section, ...]:
    """Return the sections of all pages, without the lists."""
    return tuple(section for page in PAGES for section in sections_of(page) if section.title not in LISTS)


def sections_of(page: Path) -> list[Section]:
    """Return the sections of a page. Its introduction is the first one."""
    parts = re.split(r"^#+ (.+)\n", page.read_text(), flags=re.MULTILINE)[1:]
    return [Section(page.name, title, text) for title, text in zip(parts[::2], parts[1::2], strict=True)]


def headings(page: Path) -> list[str]:
    """Return the headings of a page, without those in blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
