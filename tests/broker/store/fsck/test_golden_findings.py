"""Stores written by RocketMQ: the check reports the remarks in their manifests, and nothing else."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.fsck import Finding, Sizes, check
from skylarkmq.protocol.disk import IndexLayout
from tests.harness.golden_stores import GOLDEN_STORES, golden_store

CRASHED = "note abort"
FOUND = {
    "lagging": [
        CRASHED,
        "warning commitlog/00000000000000262144:25818 record 287962 (FixtureEvents-0@101) is in no queue",
        "warning commitlog/00000000000000262144:25818 record 287962 is not in the index",
        "warning commitlog/00000000000000262144:25818 record 287962 is not in the index",
    ],
    "torn": [
        CRASHED,
        "warning commitlog/00000000000000262144:25988 no valid record: fields end at 10391, size is 10496",
        "warning consumequeue/FixtureBulk/1/00000000000000000000:200 FixtureBulk-1@10 points at 288132: no valid",
        "warning index/20261121010852341:3300 item 143 points at 288132: no valid record",
        "warning index/20261121010852341:3320 item 144 points at 288132: no valid record",
    ],
    "trimmed": [
        "note consumequeue 109 queue units point below the first log file",
        "note index 151 index entries without a record, first at 30798",
    ],
    "crashed": [CRASHED],
    "clean": [],
    "crc": [],
}


def line_of(finding: Finding) -> str:
    at = "" if finding.offset is None else f":{finding.offset}"
    return f"{finding.severity.value} {finding.file}{at} {finding.what}"


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES, ids=map("-".join, GOLDEN_STORES))
def test_findings_are_the_remarks_of_the_manifest(tmp_path: Path, version: str, name: str) -> None:
    """Remarks are findings of the expected severity, with file and offset; without remarks there are none."""
    golden = golden_store(version, name, tmp_path)
    lines = [line_of(finding) for finding in check(golden.root)]
    expected = FOUND[name]
    assert len(lines) == len(expected), lines
    for line, beginning in zip(lines, expected, strict=True):
        assert line.startswith(beginning), line
    assert bool(golden.manifest["remarks"]) == any(line != CRASHED for line in expected)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES, ids=map("-".join, GOLDEN_STORES))
def test_sizes_are_inferred_from_files(tmp_path: Path, version: str, name: str) -> None:
    """Segment sizes, slots and items are those that the store was written with."""
    golden = golden_store(version, name, tmp_path)
    settings = golden.manifest["settings"]
    assert Sizes.of(golden.root) == Sizes(
        commit_log=settings["mappedFileSizeCommitLog"],
        consume_queue=settings["mappedFileSizeConsumeQueue"],
        index=IndexLayout(settings["maxHashSlotNum"], settings["maxIndexNum"]),
    )


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    """Contents and times of all files are the same afterwards."""
    root = golden_store("4.9.8", "torn", tmp_path).root
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    assert list(check(root))
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}
    assert after == before
