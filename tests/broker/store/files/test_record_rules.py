"""The rules for records that may enter the log, and for records that get a queue offset."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files.record_rules import RECORD_FLAGS, fits_fields, has_unit, may_be_put, may_have_queue
from skylarkmq.broker.store.log.append import PythonAppend
from skylarkmq.protocol.message_id import encode_host
from tests.harness.limits import PROCESS_LIMIT_S

SCRIPT = """
import sys
from pathlib import Path
from typing import Any
from skylarkmq.broker.store.log.append import PutStatus
from tests.harness.stores import message, opened

with opened(Path(sys.argv[1])) as it:
    it.put(message(b"first"))
    for field in ("flag", "reconsume_times", "born_timestamp", "prepared_transaction_offset"):
        for put in (it.store.put_run, it.store.put_batch, it.store.put_alike):
            bad, good = message(**{field: 1 << 70}), message(b"good")
            put([bad] if put != it.store.put_run else [bad, good])
            it.store.commit()
            assert bad.status is PutStatus.MESSAGE_ILLEGAL, (field, put, bad.status)
            assert good.status is (PutStatus.PUT_OK if put == it.store.put_run else PutStatus.PENDING)
    one, other = message(b"one"), message(flag=1 << 31)
    it.store.put_batch([one, other])
    it.store.put_alike([one, other])
    assert not it.store.commit()
    assert it.put(message(b"last"))[0].queue_offset == 5
    assert it.bodies() == [b"first", *[b"good"] * 4, b"last"]
"""


def append(**fields: Any) -> PythonAppend:
    values: dict[str, Any] = {"flag": 0, "sys_flag": 0, "born_timestamp": 0, "queue_id": 0} | fields
    return PythonAppend(topic="T", body=b"", properties=b"", tags_code=0, born_host=encode_host("1.2.3.4", 1), **values)


@pytest.mark.parametrize(
    ("topic", "queue_id", "may"),
    [
        ("T", 0, True),
        ("%RETRY%" + "g" * 248, 0, True),
        ("%RETRY%" + "g" * 249, 0, False),
        ("t" * 127, (1 << 31) - 1, True),
        ("t" * 128, 0, False),
        ("T", -1, False),
        ("T", 1 << 31, False),
        ("", 0, False),
        (".", 0, False),
        ("..", 0, False),
        ("a/b", 0, False),
        ("T\0", 0, False),
        ("T\n", 0, False),
        ("\u00e4", 0, False),
    ],
)
def test_valid_topics_and_queue_ids(topic: str, queue_id: int, may: bool) -> None:
    """Queues exist only for storable topics and 31-bit queue ids."""
    assert may_be_put(topic, queue_id) is may
    assert may_have_queue(topic, queue_id) is (may or topic == "t" * 128)


def test_numbers_fit_their_fields() -> None:
    """Every number of a message must fit its field in the record."""
    assert fits_fields(append(flag=-(1 << 31), reconsume_times=(1 << 31) - 1, born_timestamp=-(1 << 63)))
    for field in ("queue_id", "flag", "sys_flag", "reconsume_times"):
        assert not fits_fields(append(**{field: 1 << 31}))
    for field in ("born_timestamp", "prepared_transaction_offset"):
        assert not fits_fields(append(**{field: 1 << 63}))


def test_sys_flag_bits() -> None:
    """A record keeps the bits that clients use; only its transaction bits decide whether it gets a queue offset."""
    assert RECORD_FLAGS == 0x70F
    assert [flag for flag in range(0x100) if not has_unit(flag)] == [
        flag for flag in range(0x100) if flag & 0xC in {4, 12}
    ]


@pytest.mark.daemon
def test_a_number_that_does_not_fit_refuses_only_its_message(tmp_path: Path) -> None:
    """The pure-Python store refuses this message only; the compiled one cannot create such a message."""
    environment = os.environ | {"SKYLARK_COMPILED": "0"}
    root = Path(__file__).resolve().parents[4]
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, timeout=PROCESS_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
