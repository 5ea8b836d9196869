"""Compiled leaves: twins of the hottest codecs in C, where an installation could build them.

Each module here is written in Cython's pure-Python mode and is of use only when it was compiled (setup.py): then an
extension module stands beside its source and is found first. What a leaf does, the plain modules of `protocol` do too,
with the same results (tests/protocol/compiled); whoever has a leaf to offer asks for it once, when it is imported:

    _leaf = compiled.load("decode")    # None: interpreted

`SKYLARK_COMPILED=0` in the environment forces the interpreted variant. See docs/decisions/0007-compiled-modules.md.
"""

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Any, Final

SWITCH: Final = "SKYLARK_COMPILED"
LEAVES: Final = (
    "properties", "header", "packed", "pull", "decode", "answers", "queue_tail", "record", "dispatch", "index",
    "counts", "batch", "gather", "syncs", "columns", "messages", "flights", "faults",
)  # fmt: skip

is_switched_off: Final = os.environ.get(SWITCH) == "0"


def load(name: str) -> Any:
    """The leaf of that name; None where they were not built, or shall not be used. They share types: all or none."""
    return None if is_switched_off or _missing() else import_module(f"{__name__}.{name}")


def is_built(name: str) -> bool:
    """Whether the extension module is there; its source alone can do nothing."""
    spec = find_spec(f"{__name__}.{name}")
    origin = (spec and spec.origin) or ""
    return origin.endswith(tuple(EXTENSION_SUFFIXES))


def variant() -> str:
    """`compiled`, or `interpreted` and why; for people."""
    if is_switched_off:
        return f"interpreted: {SWITCH}=0"
    missing = _missing()
    if missing == LEAVES:
        return "interpreted: not built"
    return f"interpreted: {' '.join(missing)} not built" if missing else "compiled"


def _missing() -> tuple[str, ...]:
    return tuple(name for name in LEAVES if not is_built(name))
