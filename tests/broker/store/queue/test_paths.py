"""Which paths belong to consume queues."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.files.record_rules import may_have_queue
from skylarkmq.broker.store.queue.paths import QueuePaths, parse_queue_id

FIRST = f"{0:020}"


@pytest.mark.parametrize(
    ("topic", "queue_id", "expected"),
    [
        ("T", 0, True),
        ("%RETRY%g", 2**31 - 1, True),
        ("T", -1, False),
        ("T", 2**31, False),
        ("../T", 0, False),
        (".", 0, False),
        ("a\0b", 0, False),
        ("", 0, False),
        ("T" * 256, 0, False),
    ],
)
def test_which_queues_may_exist(topic: str, queue_id: int, expected: bool) -> None:
    """Queues of a storable topic, with an id that fits into a record."""
    assert may_have_queue(topic, queue_id) is expected


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("0", 0),
        ("2147483647", 2**31 - 1),
        *((name, None) for name in ("2147483648", "007", "00", "", "x", "٣", "9" * 5_000, "-1", "1.tmp")),
    ],
)
def test_directory_names_of_queues(name: str, queue_id: int | None) -> None:
    """Each queue has exactly one directory, and no two queues share one."""
    assert parse_queue_id(name) == queue_id


@pytest.mark.parametrize(
    "path",
    [
        f"../../x/0/{FIRST}",
        f"T/../{FIRST}",
        f"T/007/{FIRST}",
        f"./0/{FIRST}",
        f"/0/{FIRST}",
        f"a\0b/0/{FIRST}",
        "T/0/backup.tar",
        f"T/0/{FIRST}.tmp",
        f"T/0/{FIRST[1:]}",
        "T/0/",
    ],
)
def test_invalid_paths_are_rejected(tmp_path: Path, path: str) -> None:
    """No descriptor is opened and no file deleted by such a path, whatever its source."""
    paths = QueuePaths(f"{tmp_path}/consumequeue")
    paths.check(f"{tmp_path}/consumequeue/T/0/{FIRST}")
    paths.check(f"{tmp_path}/consumequeue/%LMQ%light.queue/0/{FIRST}")
    with pytest.raises(PermissionError, match="not a path of a queue"):
        paths.check(f"{tmp_path}/consumequeue/{path}")


@pytest.mark.parametrize("linked", ["T", "T/0"])
def test_a_link_out_of_the_root_is_rejected(tmp_path: Path, linked: str) -> None:
    """A link at a topic or at a queue. One within the root is followed, and consumequeue/ itself may be a link."""
    root, outside = tmp_path / "real", tmp_path / "outside"
    (outside / "0").mkdir(parents=True)
    (root / "Other" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue").symlink_to(root)
    path = root / linked
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    paths, directory = QueuePaths(f"{tmp_path}/consumequeue"), f"{tmp_path}/consumequeue/T/0"
    with pytest.raises(PermissionError, match="a symbolic link leads to"):
        paths.check_directory(directory)
    path.unlink()
    path.symlink_to(root / "Other" / ("0" if linked == "T/0" else ""))
    paths.check_directory(directory)
    paths.check(f"{directory}/{FIRST}")
