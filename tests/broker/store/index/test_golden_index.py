"""The index of stores that RocketMQ wrote: opened, searched, and rebuilt from the log exactly as RocketMQ built it.

`afterRestart` in the manifests is the result of RocketMQ's own recovery. Ours differs in one point: of the last message
in the kept files it adds only the missing keys; RocketMQ adds all of them again, so its last file has one more item.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol.disk import INDEX_ITEM, IndexHeader, IndexLayout
from skylarkmq.protocol.record import Record, iterate
from tests.harness.golden_stores import GOLDEN_STORES, Golden, golden_store
from tests.harness.stores import INDEX_ITEMS, INDEX_SLOTS, opened

LAYOUT = IndexLayout(INDEX_SLOTS, INDEX_ITEMS)
CRASHED = {"crashed.tar.xz", "lagging.tar.xz", "torn.tar.xz"}


@pytest.fixture(params=GOLDEN_STORES, ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, name = request.param
    return golden_store(version, name, tmp_path)


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def described(path: Path) -> dict[str, Any]:
    """Return an index file in the format of the manifest."""
    data = path.read_bytes()
    assert len(data) == LAYOUT.size
    header = IndexHeader.decode(data)
    slots = {slot: int.from_bytes(data[LAYOUT.slot_at(slot) :][:4], "big") for slot in range(LAYOUT.slots)}
    items = [INDEX_ITEM.unpack_from(data, LAYOUT.item_at(number)) for number in range(1, header.next_item)]
    assert not any(data[LAYOUT.item_at(header.next_item) :])
    return {
        "header": {
            "beginTimestamp": header.begin_timestamp,
            "endTimestamp": header.end_timestamp,
            "beginPhyOffset": header.begin_offset,
            "endPhyOffset": header.end_offset,
            "hashSlotCount": header.used_slots,
            "indexCount": header.next_item,
        },
        "slots": {str(slot): number for slot, number in slots.items() if number},
        "items": [[number, *item] for number, item in enumerate(items, 1)],
    }


def expected_files(golden: Golden) -> list[dict[str, Any]]:
    return [{key: file[key] for key in ("header", "slots", "items")} for file in golden.manifest["indexFiles"]]


def test_queries_find_what_rocketmq_finds(golden: Golden) -> None:
    """Every query by key and unique key returns the messages of RocketMQ 5.3.3, in the same order."""
    with opened(golden.root) as it:
        for entry in golden.expected["queryByKey"]:
            found = asyncio.run(
                it.store.query_by_key(
                    entry["topic"], entry["key"], entry["maxNum"], entry["beginTimestamp"], entry["endTimestamp"]
                )
            )
            offsets = [
                record.physical_offset for record in iterate(b"".join(found.records)) if isinstance(record, Record)
            ]
            assert offsets == entry["offsets"], entry


def test_files_are_kept_after_a_stop_and_completed_after_a_crash(golden: Golden) -> None:
    """A complete index stays unchanged; one left by a crash is completed from the log, without repetitions."""
    before = expected_files(golden)
    names = [path.name for path in index_files(golden.root)]
    with opened(golden.root):
        pass
    after = [described(path) for path in index_files(golden.root)]
    restarted = golden.manifest["afterRestart"]["indexFiles"]
    if golden.manifest["archive"]["name"] in CRASHED:
        restarted[-1]["indexCount"] -= 1
    else:
        assert [path.name for path in index_files(golden.root)] == names
        assert after == before
    assert [file["header"] for file in after] == [{k: v for k, v in file.items() if k != "file"} for file in restarted]


def test_a_rebuilt_index_equals_rocketmqs(golden: Golden) -> None:
    """A missing index is rebuilt from the log, with the same items as RocketMQ's."""
    before = expected_files(golden)
    for path in index_files(golden.root):
        path.unlink()
    with opened(golden.root):
        pass
    after = [described(path) for path in index_files(golden.root)]
    items = [item[1:3] for file in after for item in file["items"]]
    indexed = [item[1:3] for file in before for item in file["items"]]
    start, end = golden.records[0]["physicalOffset"], golden.end
    if start == 0 and not golden.manifest["remarks"]:
        assert after == before
    assert items[: len(indexed)] == [item for item in indexed if start <= item[1] < end]
