"""The documents agree with the repository: cited headings, linked files and named modules exist."""

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from docs.hooks.formats_sections import FORMATS, anchor
from docs.hooks.generated_pages import generated_names
from tests.documents.examples import PAGES, ROOT

GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
HEADINGS = {heading.lower() for heading in re.findall(r"^#+ (.+)$", FORMATS.read_text(), flags=re.MULTILINE)}
SOURCES = [
    path
    for folder in ("src", "protocol", "broker", "clients", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MODULES = {path.name for path in (*SOURCES, *(ROOT / "deploy").rglob("*.py"), ROOT / "setup.py")}
CITATION = re.compile(r'docs/formats\.md[,:]?\s*((?:(?:and\s+)?"[^"]+"(?:,\s*)?)+)')
MODULE_NAME = re.compile(r"(?<![\w/.*-])([\w-]+\.py)\b")
CLASS_MEMBER = re.compile(r"\b([A-Z]\w+)\.([a-z_]\w*)")
FILE_NAME = re.compile(r"`((?:protocol|broker|clients|tests|deploy|docs)/[\w./-]+\.\w+)`")


def exists(path: Path) -> bool:
    """Return whether a path is a file, a folder, or a page that is generated with the site."""
    return path.exists() or Path(os.path.relpath(path, ROOT / "docs")).as_posix() in generated_names()


def test_every_cited_section_of_the_formats_exists() -> None:
    """Each section of docs/formats.md that a module cites is a heading."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for citation in CITATION.finditer(path.read_text())
        for name in re.findall(r'"([^"]+)"', citation[1])
        if re.sub(r"\s+", " ", name).lower() not in HEADINGS
    ]
    assert missing == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_file_names_of_a_document_exist(path: Path) -> None:
    """Relative links, anchors within a document, and files named in `code` exist."""
    text = path.read_text()
    anchors = {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = [
        link
        for link in links
        if (link[1:] not in anchors if link.startswith("#") else not exists(path.parent / link.split("#")[0]))
    ]
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
    assert {"CommitLog", "FollowerLog", "Reput"} <= {name for name, _ in CLASS_MEMBER.findall(section)}
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
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nextra_css:")[0]
    named = set(re.findall(r"[\w/.-]+\.md$", nav, flags=re.MULTILINE))
    folders = {folder.rstrip("/") for folder in re.findall(r"[\w/-]+/$", nav, flags=re.MULTILINE)}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    in_folders = {page for page in pages if page.rpartition("/")[0] in folders}
    assert sorted(pages - named - in_folders) == []
    assert sorted(named - pages - generated_names()) == []
