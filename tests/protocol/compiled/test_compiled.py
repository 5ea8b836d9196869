"""Which variant runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.protocol import compiled

COMPILED = Path(compiled.__file__).parent
REBUILD = "python setup.py build_ext --inplace"
SHOW = "from skylarkmq.protocol import compiled; print(compiled.variant(), compiled.load('decode'))"


def shown(switch: str) -> str:
    """What a process with that switch says of itself."""
    environment = os.environ | {compiled.SWITCH: switch}
    return subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_the_switch_forces_the_interpreted_variant() -> None:
    """SKYLARK_COMPILED=0 is obeyed, and said."""
    assert shown("0") == "interpreted: SKYLARK_COMPILED=0 None\n"


def test_what_is_built_is_used() -> None:
    """Without the switch a leaf that is there is used."""
    assert ("decode" in shown("1")) == compiled.is_built("decode")


def test_a_leaf_that_was_not_built_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there was no compiler nothing fails, and the version line says so."""
    monkeypatch.setattr(compiled, "EXTENSION_SUFFIXES", [".nothing"])
    monkeypatch.setattr(compiled, "is_switched_off", False)
    assert compiled.load("decode") is None
    assert compiled.variant() == "interpreted: not built"


def test_leaves_are_used_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share types in C: one that is missing makes the others useless, and the version line names it."""
    monkeypatch.setattr(compiled, "is_switched_off", False)
    monkeypatch.setattr(compiled, "is_built", lambda name: name != "record")
    assert compiled.load("decode") is None
    assert compiled.variant() == "interpreted: record not built"


def test_every_leaf_is_known() -> None:
    """A module in the directory is a leaf, is in the table, and has types for those who use it uncompiled."""
    sources = {path.stem for path in COMPILED.glob("*.py")} - {"__init__"}
    assert sources == set(compiled.LEAVES) == {path.stem for path in COMPILED.glob("*.pyi")}


@pytest.mark.parametrize("name", compiled.LEAVES)
def test_a_built_leaf_is_not_older_than_its_source(name: str) -> None:
    """What is tested is what stands in the source."""
    source = COMPILED / f"{name}.py"
    built = [path for path in COMPILED.glob(f"{name}.*") if path.suffix == ".so"]
    assert all(path.stat().st_mtime >= source.stat().st_mtime for path in built), f"run: {REBUILD}"
