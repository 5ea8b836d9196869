"""The pages of the public Python API: every name in `__all__` of the public modules, with signature and docstring.

A docstring is plain text: its paragraphs become paragraphs, and indented lines become a block of code.
"""

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, get_type_hints, is_typeddict

import msgspec

from docs.hooks.markdown_text import escaped
from docs.hooks.settings_page import comments
from skylarkmq.clients.sdk.base.field_docstrings import field_docstrings, own_docstring

MODULES: Final = (
    "skylarkmq",
    "skylarkmq.admin_types",
    "skylarkmq.allocation",
    "skylarkmq.arrow",
    "skylarkmq.blocking",
    "skylarkmq.hooks",
    "skylarkmq.metrics",
    "skylarkmq.options",
    "skylarkmq.testing",
    "skylarkmq.tracing",
)
"""The modules of Spark are left out: they need PySpark, and docs/use/spark/jobs.md and docs/use/spark/archive.md
introduce them."""
FIXTURES: Final = {"skylarkmq.testing": ("mq_broker",)}
"""Public names of modules without `__all__`."""


def pages() -> dict[str, str]:
    """Return the page of each public module by file name."""
    return {f"{name}.md": module_page(name) for name in MODULES}


def public_names(name: str) -> list[str]:
    """Return the public names of a module in alphabetical order, classes and functions before constants."""
    return sorted(FIXTURES.get(name) or import_module(name).__all__, key=str.casefold)


def module_page(name: str) -> str:
    """Return the page of a module."""
    module = import_module(name)
    parts = [f"# {name}\n\n*This page is generated from the code.*\n", *prose(module.__doc__ or "")]
    for public in public_names(name):
        parts += member(public, getattr(module, public), module)
    return "\n".join(parts)


def options(kind: type) -> Iterator[str]:
    """Yield a table of the options of a TypedDict."""
    yield "| Option | Type | |\n|---|---|---|"
    for key, hint in get_type_hints(kind).items():
        yield f"| `{key}` | {type_cell(hint)} | {escaped(field_docstrings(kind)[key])} |"
    yield ""


def member(name: str, value: Any, module: ModuleType) -> Iterator[str]:
    """Yield the section of one public name."""
    yield f"## {name}\n"
    value = getattr(value, "__wrapped__", value) if name in FIXTURES.get(module.__name__, ()) else value
    if inspect.isclass(value):
        yield from class_section(name, value)
    elif inspect.isroutine(value):
        yield f"```text\n{name}{signature(value)}\n```\n"
        yield from prose(inspect.getdoc(value) or "")
    elif type(value).__module__.startswith("skylarkmq."):
        yield from prose(inspect.getdoc(value) or "")
    else:
        yield f"```text\n{name} = {plain(value)}\n```\n"


def class_section(name: str, kind: type) -> Iterator[str]:
    """Yield constructor, docstring, fields and public methods of a class."""
    if is_typeddict(kind):
        yield from prose(own_docstring(kind))
        yield from options(kind)
        return
    bases = [base.__name__ for base in kind.__bases__ if base is not object and base.__module__ != "msgspec"]
    if not issubclass(kind, Exception):
        yield f"```text\n{name}{signature(kind)}\n```\n"
    if bases:
        yield f"Bases: {', '.join(f'`{base}`' for base in bases)}\n"
    yield from prose(own_docstring(kind) if issubclass(kind, msgspec.Struct) else inspect.getdoc(kind) or "")
    if issubclass(kind, msgspec.Struct):
        yield from fields(kind)
    for method, value in public_members(kind):
        yield from method_section(name, method, value)


def fields(kind: type) -> Iterator[str]:
    """Yield a table of the fields of a struct."""
    rows = []
    for one in msgspec.structs.fields(kind):
        default = "" if one.default is msgspec.NODEFAULT else f"`{plain(one.default)}`".replace("|", "\\|")
        owner = next(base for base in kind.__mro__ if one.name in vars(base).get("__annotations__", {}))
        text = field_docstrings(owner).get(one.name) or comments(owner)[one.name]
        rows.append(f"| `{one.name}` | {default} | {escaped(text)} |")
    if rows:
        yield "| Field | Default | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def public_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that our classes define, in alphabetical order."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("skylarkmq.")]
    names = sorted({name for base in ours for name in vars(base) if not name.startswith("_")})
    for name in names:
        value = inspect.getattr_static(kind, name)
        if inspect.isroutine(value) or isinstance(value, property | cached_property | classmethod | staticmethod):
            yield name, value


def method_section(owner: str, name: str, value: Any) -> Iterator[str]:
    """Yield signature and docstring of a method or a property."""
    yield f"### {owner}.{name}\n"
    if isinstance(value, property | cached_property):
        function = value.fget if isinstance(value, property) else value.func
        returns = get_type_hints(function).get("return") if function else None
        yield f"```text\n{name}: {type_text(returns)}\n```\n" if returns else ""
    else:
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        is_async = inspect.iscoroutinefunction(function)
        yield f"```text\n{'await ' if is_async else ''}{name}{signature(function)}\n```\n"
    yield from prose(inspect.getdoc(function) or "")


def signature(value: Any) -> str:
    """Return a signature without `self` and without the modules of types; one parameter a line if it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [one for name, one in found.parameters.items() if name not in {"self", "cls"}]
    text = plain_types(str(found.replace(parameters=parameters)))
    if len(text) <= 100:
        return text
    texts = [plain_types(str(one)) for one in parameters]
    star = next((at for at, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY), None)
    if star is not None and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
        texts.insert(star, "*")
    returns = text.rpartition(") -> ")[2] if ") -> " in text else ""
    return "(\n    " + ",\n    ".join(texts) + ",\n)" + (f" -> {returns}" if returns else "")


def type_text(hint: Any) -> str:
    """Return the text of a type."""
    return plain_types(inspect.formatannotation(hint))


def type_cell(hint: Any) -> str:
    """Return the text of a type for a cell of a table."""
    return "`" + type_text(hint).replace("|", "\\|") + "`"


def plain_types(text: str) -> str:
    """Return a text without the modules of types and without addresses of objects."""
    text = re.sub(
        r"\b(?:skylarkmq|collections|typing|pathlib|datetime|ssl|asyncio|types)(?:\.\w+)*\.(?=[A-Z])", "", text
    )
    return re.sub(r"<(?:function|class|object) '?([\w.]+)'?(?: at 0x\w+)?>", r"\1", text)


def plain(value: object) -> str:
    """Return the text of a constant."""
    return plain_types(re.sub(r"\s+", " ", repr(value)))


def prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.rstrip().splitlines()
        if lines and all(line.startswith("  ") for line in lines):
            yield "```text\n" + inspect.cleandoc("\n" + paragraph) + "\n```\n"
        elif paragraph.strip():
            yield escaped(paragraph.strip()) + "\n"
