"""The order in which tests start."""

from pathlib import Path

from tests.harness.scheduling import LONGEST, ROOT, start_keys


def started(*tests: tuple[str, str]) -> list[str]:
    """Return the paths of these (path, tier) in the order in which they start."""
    keys = start_keys(tests)
    return [tests[number][0] for number in sorted(range(len(tests)), key=keys.__getitem__)]


def test_long_tests_start_first_and_short_ones_last() -> None:
    """Whatever their tiers are."""
    quick, fuzz, daemon, crash = (
        ("quick.py", "quick"),
        ("fuzz.py", "fuzz"),
        ("daemon.py", "daemon"),
        ("crash.py", "crash"),
    )
    last, first = ((LONGEST[number], "interop") for number in (-1, 0))
    assert started(quick, fuzz, daemon, crash, last, first) == [
        LONGEST[0],
        LONGEST[-1],
        "crash.py",
        "daemon.py",
        "fuzz.py",
        "quick.py",
    ]


def test_tests_that_wait_start_in_turn_with_tests_that_compute() -> None:
    """Also if their numbers differ; within a tier the order does not change."""
    crash = [(f"c{number}.py", "crash") for number in range(4)]
    interop = [(f"i{number}.py", "interop") for number in range(2)]
    assert started(*crash, *interop) == ["c0.py", "i0.py", "c1.py", "c2.py", "i1.py", "c3.py"]


def test_the_long_modules_exist() -> None:
    """A renamed module would start late."""
    files = [path.relative_to(ROOT).as_posix() for path in Path(ROOT / "tests").rglob("test_*.py")]
    assert [start for start in LONGEST if not any(file.startswith(start) for file in files)] == []
