"""Docstrings of fields, for `help`: Python does not keep the string literals after the fields of a class.

    @explained
    class ProducerSettings(Limits):
        '''Settings of a producer.'''

        retries: int = 2
        '''Further attempts on other queues.'''

`help(ProducerSettings)` then shows the text of each field. The texts are read from the source of the module, once at
its import. Without a source (a frozen program) a class has its own docstring only.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T", bound=type)


def explained(kind: T) -> T:
    """Add the docstrings of the fields of a class to its own."""
    texts = field_docstrings(kind)
    fields = (f"{name}\n{textwrap.indent(text, '    ')}" for name, text in texts.items())
    kind.__doc__ = "\n\n".join((inspect.cleandoc(kind.__doc__ or ""), *fields))
    return kind


def own_docstring(kind: type) -> str:
    """Return the docstring of a class without those of its fields."""
    body = _classes_of(kind.__module__).get(kind.__qualname__)
    return (inspect.getdoc(kind) if body is None else ast.get_docstring(body)) or ""


@cache
def field_docstrings(kind: type) -> Mapping[str, str]:
    """Return the docstrings of the fields of a class and of its bases in this project, the bases first.

    Each is one paragraph. Bases are found by their names, because a TypedDict does not keep them.
    """
    body = _classes_of(kind.__module__).get(kind.__qualname__)
    if body is None:
        return {}
    names = vars(sys.modules[kind.__module__])
    bases = (names.get(base.id) for base in body.bases if isinstance(base, ast.Name))
    texts: dict[str, str] = {}
    for base in bases:
        if isinstance(base, type) and base.__module__.startswith("skylarkmq."):
            texts |= field_docstrings(base)
    for field, after in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            texts[field.target.id] = re.sub(r"\s+", " ", str(ast.literal_eval(after.value))).strip()
    return texts


@cache
def _classes_of(module: str) -> Mapping[str, ast.ClassDef]:
    """Return the classes in the source of a module, by name; none without a source."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except OSError:
        return {}
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}
