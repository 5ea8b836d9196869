"""The documents agree with the repository: cited headings, linked files and named modules exist."""

import ast
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from docs.hooks.generated_pages import generated_names
from docs.hooks.reference_sections import PAGES as CITED_PAGES
from docs.hooks.reference_sections import anchor, headings
from tests.documents.examples import PAGES, ROOT

NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nextra_css:")[0]
PARTS = {
    "Start": ("start/",),
    "Use": ("use/",),
    "Run": ("run/",),
    "Reference": ("reference/", "decisions/", "benchmarks/", "architecture.md"),
}
"""The folders of each part of the navigation."""
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
SOURCES = [
    path
    for folder in ("src", "protocol", "broker", "clients", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
OTHER_FILES = [
    path
    for path in (
        *(ROOT / "deploy").rglob("*"),
        *(ROOT / "examples").rglob("*"),
        *(ROOT / ".github").rglob("*"),
        *ROOT.glob("*.*"),
        ROOT / "Dockerfile",
    )
    if path.suffix in {"", ".conf", ".md", ".service", ".toml", ".py", ".sh", ".yaml", ".yml"} and path.is_file()
    if path.name != "CHANGELOG.md"  # its entries may name pages that have moved since
]
MODULES = {
    path.name
    for path in (*SOURCES, *(ROOT / "deploy").rglob("*.py"), *(ROOT / "examples").rglob("*.py"), ROOT / "setup.py")
}
DOCUMENT = re.compile(r"(?<![\w/.-])docs/[\w/.-]+\.md\b")
CITATION = re.compile(
    r'(?<![\w/.-])(docs/[\w/.-]+\.md)(?:[,:]\s*|\s+\(?)(?:#\s*)?((?:(?:and\s+)?"[^"]+"(?:,\s*)?(?:#\s*)?)+)'
)
MODULE_NAME = re.compile(r"(?<![\w/.*-])([\w-]+\.py)\b")
CLASS_MEMBER = re.compile(r"\b([A-Z]\w+)\.([a-z_]\w*)")
FILE_NAME = re.compile(r"`((?:protocol|broker|clients|tests|deploy|docs)/[\w./-]+\.\w+)`")


def exists(path: Path) -> bool:
    """Return whether a path is a file, a folder, or a page that is generated with the site."""
    return path.exists() or Path(os.path.relpath(path, ROOT / "docs")).as_posix() in generated_names()


def leads_somewhere(page: Path, target: str, heading: str = "") -> bool:
    """Return whether the target of a link of a page exists, and the heading if it is a written document."""
    path = page.parent / target if target else page
    written = heading and path.suffix == ".md" and path.is_file()
    return exists(path) and (not written or heading in anchors(path.resolve()))


@cache
def titles(page: Path) -> frozenset[str]:
    """Return the headings of a page in lower case."""
    return frozenset(heading.lower() for heading in headings(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page."""
    return frozenset(anchor(heading) for heading in headings(page))


def citations(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each section that a module cites: the path of the page, and the heading in lower case."""
    for citation in CITATION.finditer(path.read_text()):
        for name in re.findall(r'"([^"]+)"', citation[2]):
            yield citation[1], re.sub(r"\s+(?:#\s+)?", " ", name).lower()


def test_every_cited_section_exists() -> None:
    """Each section of a page that a module cites is a heading of that page."""
    missing = [
        f"{path.relative_to(ROOT)}: {page}, {name}"
        for path in SOURCES
        for page, name in citations(path)
        if not (ROOT / page).is_file() or name not in titles(ROOT / page)
    ]
    assert missing == []


def test_the_pages_that_define_the_broker_are_cited() -> None:
    """The pattern of citations finds those of each page."""
    cited = Counter(page for path in SOURCES for page, _ in citations(path))
    assert all(cited[str(page.relative_to(ROOT))] > 20 for page in CITED_PAGES), cited


def test_every_document_that_a_file_names_exists() -> None:
    """Each `docs/….md` in a module, a unit, a manifest or a configuration is a page."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*SOURCES, *OTHER_FILES)
        for name in DOCUMENT.findall(path.read_text())
        if not exists(ROOT / name)
    ]
    assert missing == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_file_names_of_a_document_exist(path: Path) -> None:
    """Relative links, their anchors in written documents, and files named in `code` exist."""
    text = path.read_text()
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = [link for link in links if not leads_somewhere(path, *link.split("#"))]
    missing = [name for name in FILE_NAME.findall(text) if not exists(ROOT / name)]
    assert broken + missing == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_named_without_a_folder_exist(path: Path) -> None:
    """Each `module.py` in a document is the name of a file of the repository."""
    text = path.read_text()
    examples = set(re.findall(r'^```python title="(.+)"$', text, flags=re.MULTILINE))
    assert sorted(set(MODULE_NAME.findall(text)) - MODULES - examples) == []


@cache
def shipped_modules() -> list[str]:
    """Return the texts of all modules but the tests."""
    return [path.read_text() for path in SOURCES if not path.is_relative_to(ROOT / "tests")]


@cache
def members_of(name: str) -> frozenset[str]:
    """Return the methods and attributes that the classes of this name define themselves, without inherited ones."""
    statement = re.compile(rf"^class {name}\b", flags=re.MULTILINE)
    modules = [ast.parse(text) for text in shipped_modules() if statement.search(text)]
    parts = [
        part
        for module in modules
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == name
        for part in ast.walk(node)
    ]
    functions = {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(functions | {part.attr for part in parts if is_set_on_self(part)})


def is_set_on_self(part: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether a part of a class is the target of an assignment to an attribute of `self`."""
    if not isinstance(part, ast.Attribute) or not isinstance(part.ctx, ast.Store):
        return False
    return isinstance(part.value, ast.Name) and part.value.id == "self"


def undefined_members(text: str) -> list[str]:
    """Return each `Class.member` of a text that no class of that name defines."""
    return sorted(
        f"{name}.{member}" for name, member in set(CLASS_MEMBER.findall(text)) if member not in members_of(name)
    )


def test_functions_named_in_the_stations_of_a_message_exist() -> None:
    """Each `Class.function` in the drawings of docs/architecture.md, and below them, is defined by its class."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Stations of a message in the store\n")[2].partition("\n## ")[0]
    assert {"CommitLog", "FollowerLog", "Dispatch"} <= {name for name, _ in CLASS_MEMBER.findall(section)}
    assert undefined_members(section) == []


def test_a_removed_function_is_reported() -> None:
    """A method that a class does not have, or only inherits, counts as missing."""
    text = "CommitLog.commit, CommitLog.removed, FollowerLog.commit, NoSuchClass.commit"
    assert undefined_members(text) == ["CommitLog.removed", "FollowerLog.commit", "NoSuchClass.commit"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_of_a_document_have_a_blank_line_around_them(path: Path) -> None:
    """Markdown makes a line directly below a table one of its rows, and shows a table below a line as text."""
    text = re.sub(r"^```.*?^```$", "```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\|.*\n(?!\|)(.+)$", text, flags=re.MULTILINE) == []
    assert re.findall(r"^(?!\|)(.+)\n\|", text, flags=re.MULTILINE) == []


def test_the_glossary_is_alphabetical_and_defines_each_term_once() -> None:
    """Each row of the glossary is a bold term and one sentence, in alphabetical order."""
    rows = re.findall(r"^\| (\*\*.+?) \| (.+) \|$", GLOSSARY, flags=re.MULTILINE)
    terms = [term.replace("**", "").replace("-", " ").lower() for term, _ in rows]
    assert terms == sorted(set(terms))
    assert [text for _, text in rows if not text.endswith(".") or ". " in text] == []


def test_every_page_is_in_the_navigation() -> None:
    """Each page of docs/ is in the part `nav` of mkdocs.yml, itself or by its folder. Add new pages there."""
    named = set(re.findall(r"[\w/.-]+\.md$", NAVIGATION, flags=re.MULTILINE))
    folders = {folder.rstrip("/") for folder in re.findall(r"[\w/-]+/$", NAVIGATION, flags=re.MULTILINE)}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    in_folders = {page for page in pages if page.rpartition("/")[0] in folders}
    assert sorted(pages - named - in_folders) == []
    assert sorted(named - pages - generated_names()) == []


@pytest.mark.parametrize(("part", "folders"), PARTS.items())
def test_each_page_is_in_the_folder_of_its_part(part: str, folders: tuple[str, ...]) -> None:
    """The path of a page begins with the name of its part in the navigation."""
    text = NAVIGATION.partition(f"\n  - {part}:\n")[2].partition("\n  - ")[0]
    pages = re.findall(r"[\w/.-]+(?:\.md|/)$", text, flags=re.MULTILINE)
    assert pages
    assert [page for page in pages if not page.startswith(folders)] == []
