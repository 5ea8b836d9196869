"""Repair: queues and index are rebuilt from the log as RocketMQ wrote them, and the old ones are kept."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.broker.store.files.errors import StoreLockedError
from skylarkmq.broker.store.fsck import Severity, Sizes, check
from skylarkmq.broker.store.fsck.repair import Repaired, repair
from tests.harness.golden_stores import GOLDEN_STORES, golden_store

NOW_MS = 1_800_000_000_000
STOPPED = [golden for golden in GOLDEN_STORES if golden[1] in {"clean", "crc", "trimmed"}]


def repaired(root: Path, sizes: Sizes | None = None) -> Repaired:
    delay_levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    return repair(root, sizes or Sizes.of(root), delay_levels=delay_levels, now_ms=NOW_MS)


def queues_of(root: Path) -> dict[str, bytes]:
    files = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def index_of(root: Path) -> list[bytes]:
    """Return contents in order: the names are creation times."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


@pytest.mark.parametrize(("version", "name"), STOPPED, ids=map("-".join, STOPPED))
def test_rebuilt_files_equal_those_of_rocketmq(tmp_path: Path, version: str, name: str) -> None:
    """Queues are identical, units of expired messages included; so is the index of a complete log."""
    root = golden_store(version, name, tmp_path).root
    log, queues, index = log_of(root), queues_of(root), index_of(root)
    done = repaired(root)
    assert queues_of(root) == queues
    if name != "trimmed":
        assert index_of(root) == index
    assert log_of(root) == log
    assert [finding for finding in check(root) if finding.severity is not Severity.NOTE] == []
    assert done.kept == [f"consumequeue.before-repair-{stamp(done)}", f"index.before-repair-{stamp(done)}"]
    assert not (root / "repair").exists()


def stamp(done: Repaired) -> str:
    return done.kept[0].rpartition("-")[2]


@pytest.mark.parametrize("damage", ["deleted", "zeroed", "cut"])
def test_queues_and_index_are_rebuilt_from_the_log_alone(tmp_path: Path, damage: str) -> None:
    """They are as before the damage, and the damaged files are kept beside them."""
    root = golden_store("4.9.8", "clean", tmp_path).root
    sizes, queues, index = Sizes.of(root), queues_of(root), index_of(root)
    if damage == "deleted":
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
    for directory in () if damage == "deleted" else ("consumequeue", "index"):
        for path in sorted((root / directory).rglob("*")):
            if path.is_file():
                path.write_bytes(bytes(path.stat().st_size) if damage == "zeroed" else path.read_bytes()[:17])
    harmed = queues_of(root)
    done = repaired(root, sizes)
    assert (queues_of(root), index_of(root)) == (queues, index)
    if damage == "deleted":
        assert done.kept == []
    else:
        kept = root / done.kept[0]
        assert {str(path.relative_to(kept)) for path in kept.rglob("*/*/*")} == {
            name.removeprefix("consumequeue/") for name in harmed
        }
    assert list(check(root)) == []


def test_damage_of_the_log_stays_and_is_reported(tmp_path: Path) -> None:
    """A bad record loses only its own unit and keys; later valid records keep theirs."""
    root = golden_store("4.9.8", "clean", tmp_path).root
    first = root / "commitlog" / f"{0:020}"
    data = bytearray(first.read_bytes())
    data[90] ^= 1
    first.write_bytes(data)
    (finding,) = repaired(root).damage
    assert (finding.file, finding.offset) == ("commitlog/00000000000000000000", 0)
    assert first.read_bytes() == data
    assert [found for found in check(root) if found.severity is Severity.DAMAGE] == [finding]


def test_a_store_in_use_is_not_repaired(tmp_path: Path) -> None:
    """While another process holds the lock, no file is changed."""
    root = golden_store("4.9.8", "clean", tmp_path).root
    before = queues_of(root)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'rb+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(); input()"
    command = [sys.executable, "-c", hold, str(root / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreLockedError):
            repaired(root)
        holder.communicate(b"\n")
    assert queues_of(root) == before
