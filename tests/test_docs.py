"""The documents are true where a machine can tell: cited headings and linked files exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORMATS = (ROOT / "docs" / "formats.md").read_text()
HEADINGS = {heading.lower() for heading in re.findall(r"^#+ (.+)$", FORMATS, flags=re.MULTILINE)}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = [
    path
    for folder in ("src", "protocol", "broker", "clients", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
CITATION = re.compile(r'docs/formats\.md[,:]?\s*((?:(?:and\s+)?"[^"]+"(?:,\s*)?)+)')
FILE_NAME = re.compile(r"`((?:protocol|broker|clients|tests|deploy|docs)/[\w./-]+\.\w+)`")


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_cited_section_of_the_formats_exists() -> None:
    """A module that cites a section of docs/formats.md points at a heading."""
    strays = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for citation in CITATION.finditer(path.read_text())
        for name in re.findall(r'"([^"]+)"', citation[1])
        if re.sub(r"\s+", " ", name).lower() not in HEADINGS
    ]
    assert strays == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_and_file_name_of_a_document_leads_somewhere(path: Path) -> None:
    """Relative links, anchors within a document, and files named in `code` exist."""
    text = path.read_text()
    anchors = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = [
        link
        for link in links
        if (link[1:] not in anchors if link.startswith("#") else not (path.parent / link.split("#")[0]).exists())
    ]
    missing = [name for name in FILE_NAME.findall(text) if not (ROOT / name).exists()]
    assert broken + missing == []
