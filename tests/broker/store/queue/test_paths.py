"""Which paths belong to consume queues."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.log.record_rules import may_have_queue
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
def test_queues_that_there_may_be(topic: str, queue_id: int, expected: bool) -> None:
    """Of a storable topic, and with an id that a record can hold."""
    assert may_have_queue(topic, queue_id) is expected


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        *(("0", 0), ("2147483647", 2**31 - 1)),
        *((name, None) for name in ("2147483648", "007", "00", "", "x", "٣", "9" * 5_000, "-1", "1.tmp")),
    ],
)
def test_names_of_queues_directories(name: str, queue_id: int | None) -> None:
    """Each queue has one: two queues never share a directory, nor one queue two."""
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
def test_paths_of_other_forms_are_refused(tmp_path: Path, path: str) -> None:
    """No descriptor is opened and no file deleted by such a path, whoever made it."""
    paths = QueuePaths(f"{tmp_path}/consumequeue")
    paths.check(f"{tmp_path}/consumequeue/T/0/{FIRST}")
    paths.check(f"{tmp_path}/consumequeue/%LMQ%light.queue/0/{FIRST}")
    with pytest.raises(PermissionError, match="not a path of a queue"):
        paths.check(f"{tmp_path}/consumequeue/{path}")


@pytest.mark.parametrize("linked", ["T", "T/0"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, linked: str) -> None:
    """Of a topic or of a queue; one that stays inside is followed, and consumequeue/ itself may be a link."""
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
