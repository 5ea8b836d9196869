"""Compiled modules: C versions of the hottest codecs, for installations that could build them.

Each module here is written in Cython's pure-Python mode, and can be used only after setup.py has compiled it: Python
then finds the extension module beside the source first. For each compiled module there is a pure-Python version, here
in `protocol` or elsewhere, with the same results (tests/protocol/compiled). The module that contains the pure-Python
version selects one of the two when it is imported:

    _compiled = compiled.load("decode")    # None: use the pure-Python version

The environment variable `SKYLARK_COMPILED=0` forces the pure-Python versions. See
docs/decisions/0007-compiled-modules.md.
"""

import os
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Any, Final

SWITCH: Final = "SKYLARK_COMPILED"
MODULES: Final = (
    "properties", "header", "msgpack_header", "pull", "decode", "send_responses", "queue_tail", "record", "dispatch",
    "index", "counts", "batch", "gather", "syncs", "columns", "stored_appends", "messages", "in_flight", "faults",
    "hmac_sha1", "signed",
)  # fmt: skip

is_switched_off: Final = os.environ.get(SWITCH) == "0"


def load(name: str) -> Any:
    """Return the compiled module of that name; None if modules are missing or switched off. They share types, so either
    all are used or none."""
    return None if is_switched_off or _missing() else import_module(f"{__name__}.{name}")


def is_built(name: str) -> bool:
    """Return whether the extension module exists. Its source alone cannot be used."""
    spec = find_spec(f"{__name__}.{name}")
    origin = (spec and spec.origin) or ""
    return origin.endswith(tuple(EXTENSION_SUFFIXES))


def variant() -> str:
    """Return `compiled`, or `interpreted` with the reason; for display."""
    if is_switched_off:
        return f"interpreted: {SWITCH}=0"
    missing = _missing()
    if missing == MODULES:
        return "interpreted: not built"
    return f"interpreted: {' '.join(missing)} not built" if missing else "compiled"


def _missing() -> tuple[str, ...]:
    return tuple(name for name in MODULES if not is_built(name))
