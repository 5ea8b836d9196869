"""What users import is in short public modules; nothing that users read names the modules behind them."""

import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

import skylarkmq
from docs.hooks.api_page import public_members, public_names
from tests.documents.examples import PAGES, ROOT

SRC: Final = ROOT / "src" / "skylarkmq"
PUBLIC: Final = sorted(
    "skylarkmq" if path.stem == "__init__" else f"skylarkmq.{path.stem}"
    for path in SRC.glob("*.py")
    if path.stem not in {"commands", "http_connections"}
)
INNER_MODULE: Final = re.compile(r"\bskylarkmq\.clients\b|\bclients[./](?!html)\w+")
THIN: Final = {"skylarkmq", "skylarkmq.testing"}
"""Modules with code of their own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_document_imports_an_inner_module_of_the_clients(page: Path) -> None:
    """Documents name `skylarkmq.hooks`, never `skylarkmq.clients...`."""
    assert re.findall(r"skylarkmq\.clients[.\w]*", page.read_text()) == []


def test_the_public_modules_exist() -> None:
    """Each is documented by docs/use/sdk.md or the document of its part."""
    texts = "\n".join(page.read_text() for page in PAGES)
    assert {"skylarkmq.blocking", "skylarkmq.hooks", "skylarkmq.metrics", "skylarkmq.tracing"} <= set(PUBLIC)
    assert [name for name in PUBLIC if name not in texts] == []


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in THIN])
def test_a_public_module_only_imports(name: str) -> None:
    """It has a docstring, imports, and `__all__`, which lists exactly the names that it imports."""
    docstring, *imports, names = ast.parse(Path(import_module(name).__file__ or "").read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert isinstance(names, ast.Assign)
    assert all(isinstance(node, ast.ImportFrom) for node in imports)
    imported = {alias.name for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(import_module(name).__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_for_users_name_no_inner_module(name: str) -> None:
    """`help` of a public module, of its names and of their methods leads to public names only."""
    module = import_module(name)
    texts = {name: module.__doc__ or ""}
    for public in public_names(name):
        value = getattr(module, public)
        if inspect.ismodule(value) or not getattr(value, "__module__", "").startswith("skylarkmq."):
            continue
        texts[public] = inspect.getdoc(value) or ""
        if inspect.isclass(value):
            texts |= {f"{public}.{member}": inspect.getdoc(one) or "" for member, one in public_members(value)}
    assert {where: found for where, text in texts.items() if (found := INNER_MODULE.findall(text))} == {}


def test_error_texts_name_no_inner_module() -> None:
    """The text of an exception never tells a user to import a module of `skylarkmq.clients`."""
    raised = [
        f"{path.relative_to(ROOT)}:{constant.lineno}"
        for folder in (ROOT / "clients", SRC)
        for path in folder.rglob("*.py")
        if re.search(r"[\"'].*skylarkmq\.clients", path.read_text())
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and "skylarkmq.clients" in str(constant.value)
    ]
    assert raised == []


def test_the_names_of_the_package_do_not_hide_its_modules() -> None:
    """`skylarkmq.hooks` is the module, whatever was imported before."""
    assert set(skylarkmq.__all__).isdisjoint(name.partition(".")[2] for name in PUBLIC)


def test_metrics_without_prometheus_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import error names the extra that installs prometheus_client."""
    for name in ("skylarkmq.metrics", "skylarkmq.clients.sdk.telemetry.metrics"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"pip install 'skylarkmq\[metrics\]'"):
        import_module("skylarkmq.metrics")
