"""The import rules: folders are layers, no cycles, no imports inside functions, a pure protocol package.

`MAY_IMPORT` is the table of rules. The longest prefix that matches a module gives the layers of this project that the
module may import. A layer may always import from itself; the folders of a layer are ordered, too. The
tests parse the sources with `ast` and never import them. Imports under `if TYPE_CHECKING:` count like any other,
because a cycle of types is a cycle between modules, too. So do the cimports of Cython, in modules and in .pxd files.

All names here are relative to the package `skylarkmq`: `broker.store` is `skylarkmq.broker.store`. An import without
that prefix would load a package of the user's own; `imports_without_prefix` finds such imports.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "broker", "clients")
PREFIX = "skylarkmq."
CIMPORTS = "cython.cimports."
SUFFIXES = (".py", ".pxd")

CODECS = ("protocol", "protocol.compiled")
GROUND = (*CODECS, "broker.base")
STORE = (*GROUND, "broker.store")
REMOTING = (*GROUND, "broker.remoting")
TABLES = (*STORE, "broker.remoting", "broker.metadata")
SERVICES = (*TABLES, "broker.access", "broker.counters", "broker.delivery", "broker.ha", "broker.config")
SDK = (*CODECS, "clients.sdk")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol.compiled": (),
    "protocol": ("protocol.compiled",),
    "broker.base": CODECS,
    "broker.store": GROUND,
    "broker.remoting": GROUND,
    "broker.metadata": (*STORE, "broker.remoting"),
    "broker.counters": REMOTING,
    "broker.access": REMOTING,
    "broker.delivery": TABLES,
    "broker.namesrv": (*REMOTING, "broker.store.files", "broker.access"),
    "broker.ha": (*TABLES, "broker.delivery", "broker.namesrv"),
    "broker.config": (*TABLES, "broker.access", "broker.namesrv", "broker.ha"),
    "broker.processors": SERVICES,
    "broker.ops": SERVICES,
    "broker.store_tool": (*STORE, "broker.config"),
    "broker": (*SERVICES, "broker.namesrv", "broker.processors", "broker.ops"),
    "clients.sdk": CODECS,
    "clients": SDK,
    "clients.spark": (*SDK, "clients"),
    "skylarkmq": (*SDK, "clients", "broker.app"),
}
"""Which folders the modules of a layer may import, besides their own layer. A layer is a folder with all folders in it
that have no row of their own; what remains of `broker` is the daemon, `broker.app`."""

MOST_LAYERS: Final = 20
"""A table with more rows describes files, not a plan."""

PURE = ("protocol", "broker.ha.core")
"""Folders without side effects. `protocol.compiled` is a layer of its own: it has a thread and a signal handler."""
IMPURE_MODULES = frozenset((
    "asyncio", "os", "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "uvloop",
    "posix", "libc.errno", "libc.signal", "libc.stdio", "libc.time",
))  # fmt: skip
ONLY_UNDER = {"pyspark": ("clients.spark",), "pyarrow": ("clients.arrow", "clients.spark")}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


CIMPORT = re.compile(r"^from (\S+) cimport (.+)$", re.MULTILINE)
"""Matches a cimport of a .pxd file, which is not Python; in a module it is `from cython.cimports.x import y`."""


def source_of(path: Path) -> str:
    """Return a module's source; of a .pxd file, its cimports as a module has them."""
    text = path.read_text()
    if path.suffix == ".py":
        return text
    return "".join(f"from {CIMPORTS}{module} import {names}\n" for module, names in CIMPORT.findall(text))


PATHS = sorted(
    path for folder in (*PACKAGES, "src/skylarkmq") for path in (ROOT / folder).rglob("*.p*") if path.suffix in SUFFIXES
)
FOLDERS = {module_name(path): ".".join(path.parent.relative_to(ROOT).parts) for path in PATHS}
SOURCES = {name: "".join(source_of(path) for path in PATHS if module_name(path) == name) for name in FOLDERS}
OTHER_FILES = sorted(path for part in ("tests", "deploy") for path in (ROOT / part).rglob("*.py"))
MAY_NAME_A_PACKAGE = re.compile(
    rf"^.*\b(?:import|from)\b(?:[^\n\\]|\\\n)*(?<![.\w])(?:{'|'.join(PACKAGES)})\b", re.MULTILINE
)
"""Matches in a source with an import without the prefix. Sources without a match are not parsed, which is slow."""


class Imports(NamedTuple):
    """The imports of a source: every module that one may name, as written, and those inside functions.

    `from a import b` names `a` and `a.b`. `nested` has the line and the function of each statement.
    """

    names: tuple[str, ...]
    nested: tuple[tuple[int, str], ...]


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of nodes that contain statements; no expression does."""


@cache
def imports_of(source: str) -> Imports:
    """Return the imports of a source, which is parsed once for all rules."""
    names: list[str] = []
    nested: list[tuple[int, str]] = []
    waiting: list[tuple[ast.AST, str]] = [(ast.parse(source), "")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        if function and isinstance(node, ast.Import | ast.ImportFrom):
            nested.append((node.lineno, function))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        for name in BLOCKS:
            waiting += ((child, function) for child in getattr(node, name, ()))
    return Imports(tuple(names), tuple(nested))


def imported_names(source: str) -> Iterator[str]:
    """Yield every module that an import of the source may name, without the prefix."""
    return (name.removeprefix(CIMPORTS).removeprefix(PREFIX) for name in imports_of(source).names)


def imports_without_prefix(source: str) -> list[str]:
    """Return the imports that name a package of this project without the prefix."""
    names = imports_of(source).names if MAY_NAME_A_PACKAGE.search(source) else ()
    return [name for name in names if name.split(".")[0] in PACKAGES]


def is_under(module: str, package: str) -> bool:
    """Return whether a module is the package or inside it."""
    return module == package or module.startswith(package + ".")


def layer_of(module: str) -> str:
    """Return the longest prefix in MAY_IMPORT that matches a module."""
    return max((layer for layer in MAY_IMPORT if is_under(module, layer)), key=len)


def layer_violations(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    own = (name for name in imported_names(source) if name.split(".")[0] in PACKAGES)
    return [
        f"{module} imports {name}"
        for name in own
        if not (layer_of(name) == layer or any(is_under(name, allowed) for allowed in MAY_IMPORT[layer]))
    ]


def nested_imports(module: str, source: str) -> list[str]:
    return [f"{module}:{line} imports inside {function}()" for line, function in imports_of(source).nested]


def impurities(module: str, source: str) -> list[str]:
    names = imported_names(source)
    return [f"{module} imports {name}" for name in names if any(is_under(name, impure) for impure in IMPURE_MODULES)]


def unpacked_literals(source: str) -> list[int]:
    """Return the lines in which a literal tuple is unpacked."""
    if "*(" not in source:
        return []
    starred = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Starred))
    return sorted(node.lineno for node in starred if isinstance(node.value, ast.Tuple))


def folder_graph(sources: dict[str, str], folders: dict[str, str], top: str) -> dict[str, set[str]]:
    """Return which folders the modules of each folder below `top` import. An `__init__` that is only a docstring is not
    an import."""
    graph: dict[str, set[str]] = {folder: set() for folder in folders.values() if is_under(folder, top)}
    for module, source in sources.items():
        if (folder := folders[module]) in graph:
            names = {name for name in imported_names(source) if name in folders and has_code(sources[name])}
            graph[folder] |= {folders[name] for name in names if folders[name] in graph} - {folder}
    return graph


@cache
def has_code(source: str) -> bool:
    """Return whether a module is more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(source).body)


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of a cycle; none if the graph has no cycle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_modules_import_only_allowed_layers() -> None:
    """A module imports only from the layers below its own."""
    assert [line for module, source in SOURCES.items() for line in layer_violations(module, source)] == []


def test_modules_import_this_project_with_its_prefix() -> None:
    """Modules import this project's packages as skylarkmq.*: `broker` may be a package of the user."""
    assert [f"{module}: {name}" for module, source in SOURCES.items() for name in imports_without_prefix(source)] == []


def test_tests_and_tools_import_this_project_with_its_prefix() -> None:
    """Tests, benchmarks and tools import this project's packages as skylarkmq.*, too."""
    assert [f"{path}: {name}" for path in OTHER_FILES for name in imports_without_prefix(path.read_text())] == []


def test_no_function_contains_an_import() -> None:
    """Imports are at the top of the module, where a cycle is visible."""
    assert [line for module, source in SOURCES.items() for line in nested_imports(module, source)] == []


def test_the_table_of_layers_is_by_folder() -> None:
    """Rows and what they allow are folders, never single files; layers have an order; and the table stays short."""
    named = [*MAY_IMPORT, *(folder for allowed in MAY_IMPORT.values() for folder in allowed)]
    assert [
        name
        for name in named
        if not (ROOT / "src" / "skylarkmq" / name.removeprefix("skylarkmq").replace(".", "/")).is_dir()
    ] == []
    assert cycle_in({layer: {layer_of(folder) for folder in allowed} for layer, allowed in MAY_IMPORT.items()}) == []
    assert len(MAY_IMPORT) <= MOST_LAYERS


@pytest.mark.parametrize("top", ["broker", "clients"])
def test_the_folders_have_no_cycle(top: str) -> None:
    """The folders of `broker`, and those of `clients`, can be ordered: modules import only from earlier folders."""
    assert cycle_in(folder_graph(SOURCES, FOLDERS, top)) == []


def test_requests_are_served_without_a_connection() -> None:
    """Only `broker.remoting` imports `Connection`: other parts of the broker use the protocols of `request_source`, so
    that they can serve another kind of call."""
    importers = [
        module
        for module, source in SOURCES.items()
        if any(is_under(name, "broker.remoting.connection") for name in imported_names(source))
    ]
    assert [module for module in importers if not is_under(module, "broker.remoting")] == []
    assert importers, "the rule finds an import that is there"


def test_no_literal_tuple_is_unpacked() -> None:
    """`f(*(a, b), c)` is `f(a, b, c)`. A table whose lines have a meaning ends with `# fmt: skip`."""
    assert [f"{module}:{line}" for module, source in SOURCES.items() for line in unpacked_literals(source)] == []
    assert unpacked_literals("f(\n    *(a, b),\n    c=[*(d, e)],\n    *rest,\n)") == [2, 3]


def test_the_protocol_and_the_core_of_replication_are_pure() -> None:
    """They compute values from values, without an event loop, socket, clock, file or randomness."""
    pure = {
        module: source
        for module, source in SOURCES.items()
        if any(is_under(module, package) for package in PURE) and layer_of(module) != "protocol.compiled"
    }
    assert [line for module, source in pure.items() for line in impurities(module, source)] == []


def test_there_is_no_import_cycle() -> None:
    """The modules can be ordered so that each imports only earlier ones."""
    graph = {
        module: {name for name in imported_names(source) if name in SOURCES and name != module}
        for module, source in SOURCES.items()
    }
    assert cycle_in(graph) == []


def test_only_the_packages_of_their_extras_import_pyspark_and_pyarrow() -> None:
    """pyspark and pyarrow are optional: clients.spark imports both, and clients.arrow works without pyspark."""
    strays = [
        f"{module} imports {name}"
        for module, source in SOURCES.items()
        for name in imported_names(source)
        if (homes := ONLY_UNDER.get(name.split(".")[0])) and not any(is_under(module, home) for home in homes)
    ]
    assert strays == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("protocol.frame", "import skylarkmq.broker.store"),
        ("broker.remoting.boss", "from skylarkmq.broker.config.sections import DaemonConfig"),
        ("broker.namesrv.routes", "from skylarkmq.broker.store import message_store"),
        ("broker.store.dispatch.dispatch", "from skylarkmq.broker.delivery.arrivals import Arrivals"),
        ("clients.sdk.producing.producer", "from skylarkmq.broker.base.errors import StartError"),
        ("clients.sdk.producing.producer", "from skylarkmq.clients.arrow.columns import record_batch"),
        ("clients.arrow.topic.cluster", "from skylarkmq.clients.spark.base.options import parse"),
        ("broker.processors.send.processor", "from skylarkmq.broker.app import daemon"),
        ("protocol.compiled.record", "from cython.cimports.skylarkmq.broker.store import queue"),
        ("protocol.compiled.record", "from skylarkmq.protocol import record"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    """The check finds a forbidden import in each form of the import statement."""
    assert layer_violations(module, source)


def test_a_nested_or_impure_import_is_found() -> None:
    """The checks find an import inside a function, an impure import, and one without the prefix."""
    assert nested_imports("broker.x", "async def f():\n    from a import b\n") == ["broker.x:2 imports inside f()"]
    assert impurities("protocol.x", "from time import monotonic")
    assert impurities("protocol.x", "from cython.cimports.posix.unistd import fdatasync")
    assert imports_without_prefix(
        "from broker.config.sections import x\nimport skylarkmq.broker\nimport clients as c\n"
    )
    assert imports_without_prefix("if True:\n    import os, \\\n        broker.app.daemon as it\n") == [
        "broker.app.daemon"
    ]
    assert imports_without_prefix("import os; from protocol import frame\n") == ["protocol", "protocol.frame"]


def test_a_cycle_of_folders_is_found() -> None:
    """Two folders that import each other are a cycle although no two modules do; cimports and .pxd files count."""
    folders = {"broker.a.x": "broker.a", "broker.a.y": "broker.a", "broker.b.x": "broker.b"}
    imports = {
        "broker.a.x": "from skylarkmq.broker.b.x import Thing",
        "broker.a.y": "",
        "broker.b.x": "from cython.cimports.skylarkmq.broker.a import y",
    }
    assert cycle_in(folder_graph(imports, folders, "broker")) == []  # broker.a.y is empty
    imports["broker.a.y"] = "thing = 1"
    assert sorted(set(cycle_in(folder_graph(imports, folders, "broker")))) == ["broker.a", "broker.b"]
