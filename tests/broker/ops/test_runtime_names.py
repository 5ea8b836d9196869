"""The exporter's metrics, parsed from the runtime information."""

import pytest

from skylarkmq.broker.ops.runtime_names import RUNTIME_NAMES, RuntimeName, gib_in

BY_SUFFIX = {name.suffix: name for name in RUNTIME_NAMES}


@pytest.mark.parametrize(
    ("suffix", "text", "value"),
    [
        ("put_tps10", "1.5 2.5 3.5", 1.5),
        ("put_tps600", "1.5 2.5 3.5", 3.5),
        ("commitlog_disk_ratio", "0.29", 0.29),
        ("remain_howmanydata_toflush", "2.9 KiB", 2.9),
        ("commitlogdir_capacity_total", "Total : 252.0 GiB, Free : 72.5 GiB.", 252.0),
        ("commitlogdir_capacity_free", "Total : 1.0 TiB, Free : 512.0 MiB.", 0.5),
        ("earliest_message_timestamp", "-1", -1.0),
        ("pmdt_0ms", "null", 0.0),
        ("pmdt_0ms", "[<=0ms]:5 [0~10ms]:7 [10~50ms]:0", 5.0),
        ("pmdt_0to10ms", "[<=0ms]:5 [0~10ms]:7 [10~50ms]:0", 7.0),
        ("pmdt_10to50ms", "[<=0ms]:5 [0~10ms]:7 [10~50ms]:9", 9.0),
    ],
)
def test_a_number_is_parsed_as_by_the_exporter(suffix: str, text: str, value: float) -> None:
    """For each format of the runtime information."""
    name = BY_SUFFIX[suffix]
    assert name.value({name.key: text}) == value


def test_a_missing_key_has_no_number() -> None:
    """Its metric is left out."""
    assert RuntimeName("x", "y").value({}) is None
    assert gib_in("no capacity", "Free") == 0.0


def test_suffixes_are_unique() -> None:
    """One metric each."""
    assert len(BY_SUFFIX) == len(RUNTIME_NAMES)
