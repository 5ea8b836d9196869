"""Every kind of damage, applied to a consistent store: the check reports it with file and offset."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from skylarkmq.broker.store.fsck import Finding, Severity, check
from tests.harness.golden_stores import golden_store
from tests.harness.rounds import rounds
from tests.harness.store_check import findings_of
from tests.harness.stores import config_of, message, opened

FIRST = "commitlog/00000000000000000000"
THIRD = "commitlog/00000000000000131072"
LAST = "commitlog/00000000000000196608"
ORDERS = "consumequeue/FixtureOrders/0/00000000000000000000"
EVENTS = "consumequeue/FixtureEvents/0"
DELAYED = "consumequeue/SCHEDULE_TOPIC_XXXX/16/00000000000000000000"
INDEX = "index/20261121010820050"
ITEM = 440  # where items begin in an index file of 100 slots

Harm = Callable[[Path], object]


def flip(at: int) -> Harm:
    def harm(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    return harm


def zero(begin: int, end: int) -> Harm:
    def harm(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[begin:end] = bytes(end - begin)
        path.write_bytes(data)

    return harm


def cut(length: int) -> Harm:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def remove(path: Path) -> None:
    path.unlink()


def replace(content: bytes) -> Harm:
    return lambda path: path.write_bytes(content)


class Case(NamedTuple):
    """`harm` is applied to `file`; the check reports `severity` at `found_in`:`offset`, with a text that contains
    `what`."""

    harm: Harm
    file: str
    severity: str
    offset: int | None
    what: str
    found_in: str = ""


# The first record of the store: 0..212, V1 and IPv4; body at 88. The second begins at 212.
CASES = {
    "record size": Case(flip(0), FIRST, "damage", 0, "no valid record from 0 to"),
    "record magic": Case(flip(4), FIRST, "damage", 0, "no valid record from 0 to"),
    "record CRC": Case(flip(8), FIRST, "damage", 0, "body CRC"),
    "record queue id": Case(flip(15), FIRST, "damage", 0, "is in no queue"),
    "record queue offset": Case(flip(27), FIRST, "warning", 0, "gets no queue unit"),
    "record physical offset": Case(flip(35), FIRST, "damage", 0, "a record that states the offset 255"),
    "record store time": Case(flip(58), FIRST, "warning", None, "ms before an earlier one"),
    "record body": Case(flip(90), FIRST, "damage", 0, "body CRC"),
    "zeros within the log": Case(zero(0, 4096), FIRST, "damage", 0, "zeros where a record should be"),
    "zeros to the end of a segment": Case(zero(50_000, 65_536), FIRST, "damage", 47_093, "from 47093 to 65536"),
    "blank": Case(flip(57_652), FIRST, "damage", 57_652, "a blank of"),
    "after the blank": Case(flip(60_000), FIRST, "warning", 60_000, "1 bytes after the blank are not zero"),
    "after the log's end": Case(flip(60_000), LAST, "damage", 60_000, "after the log's end at 208334 are not zero"),
    "cut segment": Case(cut(65_000), FIRST, "damage", 0, "the file has 65000 bytes, segments here have 65536"),
    "emptied last segment": Case(cut(0), LAST, "warning", 0, "an empty last file"),
    "lost segment": Case(remove, f"commitlog/{65536:020}", "damage", 0, "65536 bytes before this file", THIRD),
    "unit offset": Case(flip(7), ORDERS, "damage", 0, "the unit FixtureOrders-0@0 contains"),
    "unit size": Case(flip(31), ORDERS, "damage", 20, "the unit FixtureOrders-0@1 contains"),
    "unit tags code": Case(flip(59), ORDERS, "damage", 40, "the unit FixtureOrders-0@2 contains"),
    "deliver time": Case(flip(19), DELAYED, "damage", 0, "the unit SCHEDULE_TOPIC_XXXX-16@0 contains"),
    "zeroed unit": Case(zero(20, 40), ORDERS, "damage", None, "bytes after the last unit"),
    "after the units": Case(flip(399), f"{EVENTS}/{1200:020}", "damage", 399, "1 bytes after the last unit"),
    "cut queue file": Case(cut(300), ORDERS, "damage", 0, "the file has 300 bytes, segments here have 400"),
    "lost queue file": Case(remove, f"{EVENTS}/{400:020}", "damage", 0, "400 bytes before", f"{EVENTS}/{800:020}"),
    "index begin time": Case(flip(7), INDEX, "damage", 0, "the header's first time"),
    "index end time": Case(flip(15), INDEX, "damage", 8, "the header's last time"),
    "index begin offset": Case(flip(23), INDEX, "damage", 16, "the header begins at offset 255"),
    "index end offset": Case(flip(31), INDEX, "damage", 24, "the header ends at offset"),
    "index slot count": Case(flip(35), INDEX, "warning", 32, "slots in use"),
    "index item count": Case(flip(39), INDEX, "damage", None, "after the last item"),
    "index slot": Case(flip(43), INDEX, "damage", 40, "slot 0 contains"),
    "item hash": Case(flip(ITEM + 23), INDEX, "damage", ITEM + 20, "no valid record with that key there"),
    "item offset": Case(flip(ITEM + 31), INDEX, "damage", ITEM + 20, "item 1 points at 255"),
    "item seconds": Case(flip(ITEM + 55), INDEX, "damage", ITEM + 40, "item 2 has 255 s"),
    "item chain": Case(flip(ITEM + 39), INDEX, "damage", ITEM + 20, "links to 255, expected 0"),
    "cut index file": Case(cut(4_000), INDEX, "damage", 0, "the file has 4000 bytes, expected 4440"),
    "lost index file": Case(remove, INDEX, "damage", 0, "record 0 is not in the index", FIRST),
    "checkpoint of the log": Case(flip(2), "checkpoint", "damage", 0, "covers the log up to"),
    "checkpoint of the queues": Case(flip(10), "checkpoint", "warning", 8, "covers the queues up to"),
    "checkpoint of the index": Case(flip(18), "checkpoint", "warning", 16, "covers the index up to"),
    "after the checkpoint": Case(flip(99), "checkpoint", "note", 99, "unknown bytes"),
    "cut checkpoint": Case(cut(10), "checkpoint", "damage", 0, "10 bytes instead of 4096"),
    "lost checkpoint": Case(remove, "checkpoint", "note", None, "no checkpoint"),
    "table": Case(cut(50), "config/topics.json", "damage", 0, ""),
    "emptied table": Case(cut(0), "config/consumerOffset.json", "damage", 0, "empty"),
    "table of another type": Case(replace(b"[1]"), "config/delayOffset.json", "damage", 0, "no JSON object"),
    "table's backup": Case(replace(b"{"), "config/topics.json.bak", "warning", 0, ""),
    "lock": Case(replace(b"locked"), "lock", "note", None, "6 bytes instead of 4"),
}  # fmt: skip


# units and items do not match the remaining log
ALSO_DAMAGE = {"record queue offset", "record store time", "emptied last segment"}


def is_found(case: Case, findings: list[Finding]) -> bool:
    return any(
        finding.severity.value == case.severity
        and finding.file == (case.found_in or case.file)
        and (case.offset is None or finding.offset == case.offset)
        and case.what in finding.what
        for finding in findings
    )


@pytest.mark.parametrize("name", CASES)
def test_damage_is_reported_with_file_and_offset(tmp_path: Path, name: str) -> None:
    """One kind of damage has a finding of the expected severity."""
    case = CASES[name]
    root = golden_store("4.9.8", "clean", tmp_path).root
    case.harm(root / case.file)
    findings = list(check(root))
    assert is_found(case, findings), findings
    has_damage = any(finding.severity is Severity.DAMAGE for finding in findings)
    assert has_damage == (case.severity == "damage" or name in ALSO_DAMAGE), findings


def test_a_record_checksum_detects_every_flip(tmp_path: Path) -> None:
    """In a store with `enabledAppendPropCRC` a change of any byte of a record is damage."""
    golden = golden_store("5.3.3", "crc", tmp_path)
    path = golden.root / FIRST
    whole = path.read_bytes()
    dice = random.Random(1)
    for record in dice.sample(golden.records[:100], 12):
        at = record["physicalOffset"] + dice.randrange(record["size"])
        flip(at)(path)
        damage = [finding for finding in check(golden.root) if finding.severity is Severity.DAMAGE]
        assert (FIRST, record["physicalOffset"]) in {(finding.file, finding.offset) for finding in damage}, at
        path.write_bytes(whole)


def test_damage_never_ends_the_check(tmp_path: Path) -> None:
    """Any flipped, zeroed or truncated bytes give findings, or none if undetectable, but no exception."""
    root = golden_store("4.9.8", "crashed", tmp_path).root
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    dice = random.Random(2)
    for _ in range(rounds(60)):
        path = dice.choice(files)
        whole = path.read_bytes()
        at = dice.randrange(len(whole))
        harm = dice.choice((flip(at), zero(at, min(at + 512, len(whole))), cut(at)))
        harm(path)
        list(check(root))
        path.write_bytes(whole)


def test_many_findings_of_a_kind_are_counted(tmp_path: Path) -> None:
    """Ten findings of a kind are reported one by one, the others as one."""
    root = golden_store("4.9.8", "clean", tmp_path).root
    (root / INDEX).unlink()
    missing = [finding for finding in check(root) if finding.file == FIRST and "not in the index" in finding.what]
    assert len(missing) == 11
    assert "more of the same kind, the first: record" in missing[-1].what


@pytest.mark.parametrize(("content", "damage"), [("[1, 2]", []), ("[]", []), ("{}", ["no JSON list"])])
def test_the_undecided_records_of_a_follower_are_a_list(tmp_path: Path, content: str, damage: list[str]) -> None:
    """All other files under config/ are objects."""
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        it.put(message())
    (tmp_path / "config").mkdir(exist_ok=True)
    for name in ("undecidedRecords.json", "undecidedRecords.json.bak"):
        (tmp_path / "config" / name).write_text(content)
    found = findings_of(tmp_path, config_of(tmp_path))
    assert [finding.what for finding in found if finding.severity is Severity.DAMAGE] == damage
