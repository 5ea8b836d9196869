"""The import rules: allowed imports of each layer, no cycles, no imports inside functions, a pure protocol package.

`MAY_IMPORT` is the table of rules. The longest prefix that matches a module gives the packages of this project that
the module may import. A package may always import from itself. The tests parse the sources with `ast` and never
import them. Imports under `if TYPE_CHECKING:` count like any other, because a cycle of types is a cycle between
modules, too.

All names here are relative to the package `skylarkmq`: `broker.store` is `skylarkmq.broker.store`. An import without
that prefix would load a package of the user's own; `imports_without_prefix` finds such imports.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "broker", "clients")
PREFIX = "skylarkmq."

STORE = ("protocol", "broker.errors", "broker.histogram", "broker.host.page_faults")
METADATA = (*STORE, "broker.config.sections", "broker.store", "broker.remoting")
DELIVERY = (*METADATA, "broker.metadata")
PROCESSORS = (*DELIVERY, "broker.access", "broker.delivery", "broker.config.live")
DAEMON = (*PROCESSORS, "broker.clocks", "broker.processors", "broker.namesrv", "broker.ops")

COMMANDS = (*STORE, "broker.config.parsing", "broker.config.keys", "broker.store", "broker.printable")

# Reading the configuration may import only the config structs that other parts declare.
KEYS = (
    *("protocol", "broker.errors", "broker.config.parsing"),
    *("broker.store.config", "broker.remoting.config", "broker.access.config"),
    *("broker.access.address_ranges", "broker.access.security_config", "broker.ha.config"),
    *("broker.ha.classic.frames", "broker.ha.peers"),
)
CONFIG = (
    *(*KEYS, "broker.config.protected_keys", "broker.config.keys", "broker.metadata.limits", "broker.namesrv.config"),
    "protocol",
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol": (),
    "broker": (),
    "broker.errors": (),
    "broker.config.protected_keys": (),
    "broker.histogram": ("protocol",),
    "broker.host.addresses": (),
    "broker.host.huge_pages": (),
    "broker.host.service_manager": (),
    "broker.host.page_faults": ("protocol",),
    "broker.host.idle_states": ("broker.remoting",),
    "broker.printable": (),
    "broker.clocks": (),
    "broker.config.java_properties": ("broker.errors",),
    "broker.config.parsing": ("broker.errors", "broker.config.java_properties"),
    "broker.config.keys": KEYS,
    "broker.config.sections": CONFIG,
    "broker.remoting": ("protocol", "broker.errors", "broker.histogram", "broker.host.page_faults"),
    "broker.namesrv": (
        *("protocol", "broker.access", "broker.config.protected_keys", "broker.errors", "broker.remoting"),
        *("broker.store.errors", "broker.store.state_file"),
    ),
    "broker.access": ("protocol", "broker.errors", "broker.histogram", "broker.remoting"),
    "broker.store": STORE,
    "broker.metadata": METADATA,
    "broker.ha": ("protocol", "broker.errors", "broker.histogram"),
    "broker.ha.link": ("protocol", "broker.errors", "broker.ha", "broker.histogram", "broker.remoting", "broker.store"),
    "broker.ha.config": ("broker.access.address_ranges", "broker.ha.peers"),
    "broker.ha.server": ("protocol", "broker.ha", "broker.access.address_ranges"),
    "broker.ha.classic": (
        *(*DELIVERY, "broker.delivery", "broker.namesrv"),
        *("broker.ha.config", "broker.ha.refused", "broker.ha.status"),
    ),
    "broker.delivery": DELIVERY,
    "broker.processors": (*PROCESSORS, "broker.ha.status"),
    "broker.ops": (*DELIVERY, "broker.access", "broker.delivery", "broker.ha.status"),
    "broker.config.derived": (
        "protocol",
        "broker.config.sections",
        "broker.delivery",
        "broker.ha.config",
        "broker.metadata",
        "broker.remoting",
        "broker.namesrv",
        "broker.ops",
        "broker.processors",
        "broker.store",
    ),
    "broker.config.file": ("broker.config.java_properties",),
    "broker.config.live": (
        *("protocol", "broker.errors", "broker.config.java_properties", "broker.config.parsing"),
        *("broker.config.sections", "broker.config.file"),
    ),
    "broker.config_reload": (*DAEMON, "broker.config.derived", "broker.config.live", "broker.parts"),
    "broker.startup": (
        *("broker.errors", "broker.host.idle_states", "broker.host.huge_pages", "broker.ops", "broker.remoting"),
        *("broker.access.address_ranges", "broker.config.sections", "broker.store"),
    ),
    "broker.background_delivery": (*DELIVERY, "broker.delivery", "broker.config.derived", "broker.ha.config"),
    "broker.access_control": (
        *(*DAEMON, "broker.access", "broker.background_delivery", "broker.usage_control", "broker.wiring"),
        "broker.config.derived",
    ),
    "broker.replication_parts": (
        *(*CONFIG, *STORE, "broker.clocks", "broker.config.sections", "broker.ha", "broker.remoting.tls"),
        "broker.store",
    ),
    "broker.usage_control": (*PROCESSORS, "broker.wiring"),
    "broker.wiring": (*PROCESSORS, "broker.processors"),
    "broker.parts": (
        *(
            *DAEMON,
            "broker.access",
            "broker.background_delivery",
            "broker.replication_parts",
            "broker.wiring",
            "broker.config.derived",
            "broker.config.keys",
        ),
        *("broker.access_control", "broker.config.protected_keys", "broker.config.live", "broker.ha"),
    ),
    "broker.namesrv_parts": (
        *(*DAEMON, "broker.access_control", "broker.usage_control", "broker.config.derived", "broker.config.keys"),
        "broker.config.protected_keys",
    ),
    "broker.daemon": (
        *(*DAEMON, "broker.background_delivery", "broker.parts", "broker.namesrv_parts", "broker.replication_parts"),
        "broker.startup",
        *("broker.host.idle_states", "broker.host.service_manager", "broker.config_reload"),
    ),
    "broker.cli": (
        *(*CONFIG, "broker.config.sections", "broker.daemon", "broker.host.addresses", "broker.host.page_faults"),
        "broker.printable",
    ),
    "broker.in_process": (
        *(*CONFIG, "broker.clocks", "broker.config.live", "broker.config.sections", "broker.daemon"),
        "broker.ops.console",
    ),
    "broker.store_command_line": COMMANDS,
    "broker.backup_commands": (*COMMANDS, "broker.store_command_line"),
    "broker.store_commands": (*COMMANDS, "broker.store_command_line", "broker.backup_commands"),
    "broker.__main__": ("broker.cli",),
    "clients": ("protocol",),
    "clients.arrow": (
        *("protocol", "clients.background_loop", "clients.connection", "clients.consuming", "clients.errors"),
        "clients.settings",
    ),
    "clients.spark": ("protocol", "clients"),
    "skylarkmq": ("clients",),
    "skylarkmq.admin_types": ("clients", "protocol"),
}

ONLY_DOCSTRINGS = frozenset({"broker", "broker.config", "broker.host", "clients"})
"""Packages whose `__init__` is only a docstring: importing one does not depend on a layer."""

PURE = ("protocol", "broker.ha.core")
IMPURE_MODULES = frozenset((
    "asyncio", "os", "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "uvloop",
))  # fmt: skip
ALLOWED_IMPURE = {"protocol.compiled": "os"}  # reads one environment variable at import
ONLY_UNDER = {"pyspark": ("clients.spark",), "pyarrow": ("clients.arrow", "clients.spark")}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(path): path.read_text()
    for folder in (*PACKAGES, "src/skylarkmq")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
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
    return (name.removeprefix(PREFIX) for name in imports_of(source).names)


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
    own = (name for name in imported_names(source) if name.split(".")[0] in PACKAGES and name not in ONLY_DOCSTRINGS)
    return [
        f"{module} imports {name}"
        for name in own
        if layer_of(name) != layer and not any(is_under(name, allowed) for allowed in MAY_IMPORT[layer])
    ]


def nested_imports(module: str, source: str) -> list[str]:
    return [f"{module}:{line} imports inside {function}()" for line, function in imports_of(source).nested]


def impurities(module: str, source: str) -> list[str]:
    impure = IMPURE_MODULES - {ALLOWED_IMPURE.get(module, "")}
    return [f"{module} imports {name}" for name in imported_names(source) if name.split(".")[0] in impure]


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


def test_the_protocol_and_the_core_of_replication_are_pure() -> None:
    """They compute values from values, without an event loop, socket, clock, file or randomness."""
    pure = {module: source for module, source in SOURCES.items() if any(is_under(module, package) for package in PURE)}
    assert [line for module, source in pure.items() for line in impurities(module, source)] == []


def test_there_is_no_import_cycle() -> None:
    """The modules can be ordered so that each imports only earlier ones."""
    graph = {
        module: {name for name in imported_names(source) if name in SOURCES and name != module}
        for module, source in SOURCES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


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
        ("broker.store.reput", "from skylarkmq.broker.delivery.arrivals import Arrivals"),
        ("clients.producing.producer", "from skylarkmq.broker.errors import StartError"),
        ("clients.producing.producer", "from skylarkmq.clients.arrow.columns import record_batch"),
        ("clients.arrow.topic.cluster", "from skylarkmq.clients.spark.options import parse"),
        ("broker.processors.send.processor", "from skylarkmq.broker import daemon"),
    ],
)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    """The check finds a forbidden import in each form of the import statement."""
    assert layer_violations(module, source)


def test_a_nested_or_impure_import_is_found() -> None:
    """The checks find an import inside a function, an impure import, and one without the prefix."""
    assert nested_imports("broker.x", "async def f():\n    from a import b\n") == ["broker.x:2 imports inside f()"]
    assert impurities("protocol.x", "from time import monotonic")
    assert imports_without_prefix(
        "from broker.config.sections import x\nimport skylarkmq.broker\nimport clients as c\n"
    )
    assert imports_without_prefix("if True:\n    import os, \\\n        broker.daemon as it\n") == ["broker.daemon"]
    assert imports_without_prefix("import os; from protocol import frame\n") == ["protocol", "protocol.frame"]
