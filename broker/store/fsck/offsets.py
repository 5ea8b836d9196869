"""Checks committed offsets against the queues: a group cannot have consumed more than its queue ever had.

An offset above a queue's end shows that messages are lost: a power cut under ASYNC_FLUSH, or recovery by an earlier
version that truncated acknowledged messages. Offsets of queues without files are ignored: their topic may be deleted.

Source: docs/reference/disk.md, "Recovery"; docs/reference/wire.md, "Consumer offsets".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.broker.store.fsck.state import read_table
from skylarkmq.broker.store.recovery.queue_order import Key

OFFSETS_FILE: Final = "consumerOffset.json"


def check_committed(root: Path, ends: Mapping[Key, int], found: Findings) -> None:
    """Compare `config/consumerOffset.json` with the ends of queues."""
    table = read_table(root, OFFSETS_FILE).get("offsetTable")
    for name, offsets in table.items() if isinstance(table, dict) else ():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in offsets.items() if isinstance(offsets, dict) else ():
            end = ends.get((topic, int(queue_id))) if str(queue_id).isdecimal() else None
            if end is not None and isinstance(offset, int) and offset > end:
                what = f"group {group!r} has committed {offset} of {topic!r}-{queue_id}, which ends at {end}"
                follows = "consumed messages are lost from the log; its consumers continue at the queue's end"
                found.add("committed", Finding(Severity.WARNING, f"config/{OFFSETS_FILE}", None, what, follows))
