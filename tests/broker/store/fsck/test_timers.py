"""The check of timer files: valid ones have no findings, and each kind of damage is found."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from skylarkmq.broker.store.fsck import Finding, Severity, check
from skylarkmq.protocol.timers import SLOT, SLOT_SIZE, UNIT_SIZE
from tests.harness.rounds import rounds
from tests.harness.stores import opened
from tests.harness.timed import deletion, stop, timed, timers_of

BEGIN: Final = 1_700_000_000_000
FIRST_FILE: Final = f"timerlog/{0:020d}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a store stopped with waiting timers, in two files of its timer log; some timers have been delivered."""
    with opened(tmp_path) as it:
        timers = timers_of(it)
        timers.delivery.load()
        it.put(*(timed(b"%d" % n, BEGIN + 1_000 * (1 + n % 5)) for n in range(30)), deletion(BEGIN + 5_000, "34"))
        it.clock.now_ms = BEGIN + 2_500
        while (next_ms := timers.delivery.step(it.clock.now_ms)) is not None and next_ms <= it.clock.now_ms:
            pass
        stop(it, timers)
    return tmp_path


def timer_findings(root: Path) -> list[tuple[Severity, str, str]]:
    names = ("timer", "config/timer")
    found = list(check(root))
    assert not [one for one in found if one.severity is Severity.DAMAGE and not one.file.startswith(names)]
    return [(one.severity, one.file, one.what) for one in found if one.file.startswith(names)]


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def a_waiting_slot(root: Path) -> int:
    """Return the position of the slot with the latest time."""
    data = (root / "timerwheel").read_bytes()
    slots = [(fields[0], at * SLOT_SIZE) for at, fields in enumerate(SLOT.iter_unpack(data))]
    return max(slots)[1]


def test_a_valid_store_has_no_findings(root: Path) -> None:
    """Slots and units of delivered timers are valid, too."""
    assert timer_findings(root) == []


def no_unit(root: Path) -> None:
    overwrite(root / FIRST_FILE, 3 * UNIT_SIZE, bytes(UNIT_SIZE))


def another_size(root: Path) -> None:
    overwrite(root / FIRST_FILE, 4 * UNIT_SIZE + 36, (99).to_bytes(4, "big"))


def beyond_the_log(root: Path) -> None:
    overwrite(root / FIRST_FILE, 4 * UNIT_SIZE + 28, (1 << 40).to_bytes(8, "big"))


def shorter_log(root: Path) -> None:
    os.truncate(root / FIRST_FILE, 500)


def another_chain(root: Path) -> None:
    overwrite(root / "timerwheel", a_waiting_slot(root) + 16, (0).to_bytes(8, "big"))


def another_count(root: Path) -> None:
    overwrite(root / "timerwheel", a_waiting_slot(root) + 24, (77).to_bytes(4, "big"))


def no_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def shorter_check(root: Path) -> None:
    os.truncate(root / "config" / "timercheck", 100)


def too_much_promised(root: Path) -> None:
    overwrite(root / "config" / "timercheck", 8, (1 << 30).to_bytes(8, "big"))


@pytest.mark.parametrize(
    ("damage", "severity", "file", "what"),
    [
        (no_unit, Severity.DAMAGE, FIRST_FILE, "not a timer log unit"),
        (another_size, Severity.DAMAGE, FIRST_FILE, "no message of 99 bytes"),
        (beyond_the_log, Severity.DAMAGE, FIRST_FILE, f"byte {1 << 40} is not in the log"),
        (shorter_log, Severity.DAMAGE, FIRST_FILE, "the file has 500 bytes"),
        (another_chain, Severity.WARNING, "timerwheel", "no unit of its time"),
        (another_count, Severity.NOTE, "timerwheel", "the slot states"),
        (no_wheel, Severity.WARNING, "timerwheel", "no wheel"),
        (shorter_check, Severity.WARNING, "config/timercheck", "100 bytes"),
        (too_much_promised, Severity.WARNING, "config/timercheck", f"up to {1 << 30}"),
    ],
)
def test_damage_is_found(root: Path, damage: Callable[[Path], None], severity: Severity, file: str, what: str) -> None:
    """The finding has the expected severity, file and text."""
    damage(root)
    found = timer_findings(root)
    assert any(one[:2] == (severity, file) and what in one[2] for one in found), found


def test_damage_never_ends_the_check(root: Path) -> None:
    """Random bytes in these files give findings, but no exception."""
    rng = Random(3)
    paths = [root / "timerwheel", root / FIRST_FILE, root / "config" / "timercheck"]
    for _ in range(rounds(150)):
        path = rng.choice(paths)
        overwrite(path, rng.randrange(path.stat().st_size), rng.randbytes(rng.choice((1, 8, 60))))
        assert all(isinstance(one, Finding) for one in check(root))
