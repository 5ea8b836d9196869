"""Selection between the compiled modules and their pure-Python versions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.protocol import compiled

COMPILED = Path(compiled.__file__).parent
REBUILD = "python setup.py build_ext --inplace"
PRINT_VARIANT = "from skylarkmq.protocol import compiled; print(compiled.variant(), compiled.load('decode'))"


def reported_variant(switch: str) -> str:
    """Return the variant that a process with that value of the environment variable uses."""
    environment = os.environ | {compiled.SWITCH: switch}
    return subprocess.run(
        [sys.executable, "-c", PRINT_VARIANT], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_the_switch_forces_the_python_versions() -> None:
    """SKYLARK_COMPILED=0 forces the pure-Python versions, and the variant text says so."""
    assert reported_variant("0") == "interpreted: SKYLARK_COMPILED=0 None\n"


def test_built_modules_are_used() -> None:
    """Without the environment variable a compiled module that is built is used."""
    assert ("decode" in reported_variant("1")) == compiled.is_built("decode")


def test_without_modules_the_python_versions_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler at installation nothing fails, and the variant text says so."""
    monkeypatch.setattr(compiled, "EXTENSION_SUFFIXES", [".nothing"])
    monkeypatch.setattr(compiled, "is_switched_off", False)
    assert compiled.load("decode") is None
    assert compiled.variant() == "interpreted: not built"


def test_modules_are_used_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share types in C, so if one is missing the others are not used; the variant text names it."""
    monkeypatch.setattr(compiled, "is_switched_off", False)
    monkeypatch.setattr(compiled, "is_built", lambda name: name != "record")
    assert compiled.load("decode") is None
    assert compiled.variant() == "interpreted: record not built"


def test_every_module_is_in_the_table() -> None:
    """Each module in the directory is in the table, and has a stub with types for the code that uses it."""
    sources = {path.stem for path in COMPILED.glob("*.py")} - {"__init__"}
    assert sources == set(compiled.MODULES) == {path.stem for path in COMPILED.glob("*.pyi")}


@pytest.mark.parametrize("name", compiled.MODULES)
def test_a_built_module_is_not_older_than_its_source(name: str) -> None:
    """The tests run what is in the sources."""
    source = COMPILED / f"{name}.py"
    built = [path for path in COMPILED.glob(f"{name}.*") if path.suffix == ".so"]
    assert all(path.stat().st_mtime >= source.stat().st_mtime for path in built), f"run: {REBUILD}"
