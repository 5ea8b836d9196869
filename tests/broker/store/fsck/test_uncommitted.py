"""A replica that was stopped may have records that are not committed: they are in no queue and in no index."""

import json
from pathlib import Path

import pytest

from skylarkmq.broker.store.fsck import Severity
from tests.harness.store_check import findings_of
from tests.harness.stores import Opened, config_of, message, opened

COMMITTED = 3


def followed(root: Path, *, is_clean: bool = False) -> tuple[int, int]:
    """Make a follower of a log of five messages, of which three are visible. Return the mark and the log's end."""
    with opened(root / "leader") as leader:
        keyed = [message(b"%d" % number, properties=b"KEYS\x01k\x02") for number in range(5)]
        leader.put(*keyed)
        data = b"".join(leader.store.record_at(one.physical_offset) or b"" for one in keyed)
    mark = keyed[COMMITTED].physical_offset
    it = Opened(root / "follower", is_follower=True)
    assert it.store.replica is not None
    it.store.replica.append(0, data)
    it.store.replica.show(len(data) if is_clean else mark)
    it.store.close()
    return mark, len(data)


def test_records_above_the_committed_mark_are_a_note(tmp_path: Path) -> None:
    """One line for all of them, after a stop of the follower."""
    mark, _ = followed(tmp_path)
    root = tmp_path / "follower"
    (root / "haState").write_text(json.dumps({"promised": 1, "storeId": "a", "committed": mark}))
    found = findings_of(root, config_of(root))
    assert {one.severity for one in found} == {Severity.NOTE}
    [line] = [one for one in found if one.file == "consumequeue"]
    assert line.what == f"2 records above the committed mark {mark} are in no queue"
    assert line.follows == "a replica shows them once they are committed"


def test_records_below_the_mark_are_missing(tmp_path: Path) -> None:
    """A start adds them: the mark is written once a second."""
    _, end = followed(tmp_path)
    root = tmp_path / "follower"
    (root / "haState").write_text(json.dumps({"promised": 1, "storeId": "a", "committed": end}))
    found = [one.what for one in findings_of(root, config_of(root)) if one.severity is Severity.WARNING]
    assert [what for what in found if "is in no queue" in what] != []


@pytest.mark.parametrize("state", ["[]", "{", '{"committed":"x"}', '{"committed":0}'])
def test_after_a_clean_stop_nothing_may_be_missing(tmp_path: Path, state: str) -> None:
    """The whole log was visible then, whatever haState says. A damaged file stops the start, and no check."""
    followed(tmp_path, is_clean=True)
    root = tmp_path / "follower"
    (root / "haState").write_text(state)
    for path in (root / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    found = findings_of(root, config_of(root))
    assert len([one for one in found if one.severity is Severity.DAMAGE]) == 5
