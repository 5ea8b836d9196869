"""The import rule: who may import whom, no cycles, no imports inside functions, a pure protocol package.

The rule is a table, `MAY_IMPORT`: the longest prefix that matches a module says which packages of ours it may import.
A package may always import from itself. Sources are read with `ast`, never imported, and imports under
`if TYPE_CHECKING:` count like any other: a cycle of types is a cycle of ideas.

All names here are those within the package `skylarkmq`: `broker.store` is `skylarkmq.broker.store`. An import without
that prefix would be one of the user's own modules: `outsiders` finds those.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "broker", "clients")
PREFIX = "skylarkmq."

STORE = ("protocol", "broker.errors", "broker.histogram", "broker.host.page_faults")
METADATA = (*STORE, "broker.config.sections", "broker.store", "broker.remoting")
DELIVERY = (*METADATA, "broker.metadata")
PROCESSORS = (*DELIVERY, "broker.delivery", "broker.config.live")
DAEMON = (*PROCESSORS, "broker.processors", "broker.namesrv", "broker.ops")

# Reading the configuration: below everything but the structs that the parts declare for themselves.
KEYS = (
    *("broker.errors", "broker.config.unsupported_keys", "broker.config.parsing"),
    *("broker.store.config", "broker.remoting.config"),
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
    "broker.host.huge_pages": (),
    "broker.host.page_faults": ("protocol",),
    "broker.host.idle_states": ("broker.remoting",),
    "broker.config.unsupported_keys": (),
    "broker.printable": (),
    "broker.config.java_properties": ("broker.errors",),
    "broker.config.parsing": ("broker.errors", "broker.config.java_properties"),
    "broker.config.keys": KEYS,
    "broker.config.sections": CONFIG,
    "broker.remoting": ("protocol", "broker.errors", "broker.histogram", "broker.host.page_faults"),
    "broker.namesrv": ("protocol", "broker.config.protected_keys", "broker.errors", "broker.remoting"),
    "broker.store": STORE,
    "broker.metadata": METADATA,
    "broker.delivery": DELIVERY,
    "broker.processors": PROCESSORS,
    "broker.ops": (*DELIVERY, "broker.delivery"),
    "broker.config.derived": (
        "protocol",
        "broker.config.sections",
        "broker.delivery",
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
        "broker.store",
    ),
    "broker.background_delivery": (*DELIVERY, "broker.delivery", "broker.config.derived"),
    "broker.wiring": (*PROCESSORS, "broker.processors"),
    "broker.parts": (
        *(*DAEMON, "broker.background_delivery", "broker.wiring", "broker.config.derived", "broker.config.keys"),
        *("broker.config.protected_keys", "broker.config.live"),
    ),
    "broker.daemon": (
        *(*DAEMON, "broker.background_delivery", "broker.parts", "broker.startup"),
        *("broker.config.derived", "broker.config.keys"),
        *("broker.host.idle_states", "broker.config.protected_keys", "broker.config_reload", "broker.config.live"),
    ),
    "broker.cli": (*CONFIG, "broker.config.sections", "broker.daemon", "broker.host.page_faults", "broker.printable"),
    "broker.in_process": (*CONFIG, "broker.config.sections", "broker.daemon"),
    "broker.store_commands": (
        *(*STORE, "broker.config.parsing", "broker.config.keys", "broker.store", "broker.printable"),
    ),
    "broker.__main__": ("broker.cli",),
    "clients": ("protocol",),
    "skylarkmq": ("clients",),
}

ONLY_DOCSTRINGS = frozenset({"broker", "broker.config", "broker.host", "clients"})
"""Packages whose `__init__` is only a docstring: importing one says nothing about a layer."""

PURE = "protocol"
IMPURE_MODULES = frozenset((
    "asyncio", "os", "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "uvloop",
))  # fmt: skip
ASKS_FOR_A_SWITCH = {"protocol.compiled": "os"}  # one environment variable, read when it is imported
ONLY_UNDER = {"pyspark": "clients.spark", "pyarrow": "clients.spark"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {
    module_name(path): path.read_text()
    for place in (*PACKAGES, "src/skylarkmq")
    for path in sorted((ROOT / place).rglob("*.py"))
}
OTHERS = sorted(path for part in ("tests", "deploy") for path in (ROOT / part).rglob("*.py"))


def imported_names(source: str) -> Iterator[str]:
    """Every name an import statement could bind a module to: `from a import b` gives `a` and `a.b`."""
    return (name.removeprefix(PREFIX) for name in written_names(source))


def written_names(source: str) -> Iterator[str]:
    """The same as they are written."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def outsiders(source: str) -> list[str]:
    """Imports of our packages by names that belong to others."""
    return [name for name in written_names(source) if name.split(".")[0] in PACKAGES]


def under(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def layer_of(module: str) -> str:
    return max((layer for layer in MAY_IMPORT if under(module, layer)), key=len)


def layer_violations(module: str, source: str) -> list[str]:
    layer = layer_of(module)
    ours = (name for name in imported_names(source) if name.split(".")[0] in PACKAGES and name not in ONLY_DOCSTRINGS)
    return [
        f"{module} imports {name}"
        for name in ours
        if layer_of(name) != layer and not any(under(name, allowed) for allowed in MAY_IMPORT[layer])
    ]


def nested_imports(module: str, source: str) -> list[str]:
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [
        f"{module}:{statement.lineno} imports inside {function.name}()"
        for function in functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]


def impurities(module: str, source: str) -> list[str]:
    impure = IMPURE_MODULES - {ASKS_FOR_A_SWITCH.get(module, "")}
    return [f"{module} imports {name}" for name in imported_names(source) if name.split(".")[0] in impure]


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_module_imports_only_what_its_layer_may(module: str) -> None:
    """A module imports only from the layers below its own."""
    assert layer_violations(module, SOURCES[module]) == []


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_a_module_imports_ours_by_their_one_name(module: str) -> None:
    """`broker`, `protocol` and `clients` are names of a user's own packages."""
    assert outsiders(SOURCES[module]) == []


def test_nothing_else_imports_ours_by_another_name() -> None:
    """Neither do tests, benchmarks and tools."""
    assert [f"{path}: {name}" for path in OTHERS for name in outsiders(path.read_text())] == []


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_no_import_hides_in_a_function(module: str) -> None:
    """Imports stand at the top of the module, where a cycle would show."""
    assert nested_imports(module, SOURCES[module]) == []


@pytest.mark.parametrize("module", sorted(name for name in SOURCES if under(name, PURE)))
def test_the_protocol_package_is_pure(module: str) -> None:
    """protocol turns bytes into values: it has no loop, socket, clock, file or chance."""
    assert impurities(module, SOURCES[module]) == []


def test_there_is_no_import_cycle() -> None:
    """The modules can be put in an order in which each imports only earlier ones."""
    graph = {
        module: {name for name in imported_names(source) if name in SOURCES and name != module}
        for module, source in SOURCES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_spark_is_imported_in_its_own_corner_only() -> None:
    """pyspark and pyarrow are optional, so nothing outside clients.spark needs them."""
    strays = [
        f"{module} imports {name}"
        for module, source in SOURCES.items()
        for name in imported_names(source)
        if (home := ONLY_UNDER.get(name.split(".")[0])) and not under(module, home)
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
        ("broker.processors.send.processor", "from skylarkmq.broker import daemon"),
    ],
)
def test_a_planted_breach_of_the_rule_is_found(module: str, source: str) -> None:
    """The checker sees an import that breaks the rule, in each of the forms in which one can be written."""
    assert layer_violations(module, source)


def test_a_planted_nested_or_impure_import_is_found() -> None:
    """The checker sees an import inside a function and an impure one."""
    assert nested_imports("broker.x", "async def f():\n    from a import b\n") == ["broker.x:2 imports inside f()"]
    assert impurities("protocol.x", "from time import monotonic")
    assert outsiders("from broker.config.sections import x\nimport skylarkmq.broker\nimport clients as c\n")
