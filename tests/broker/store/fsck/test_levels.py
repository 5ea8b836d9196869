"""Units of delayed messages, checked against a table of levels that has changed."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.fsck import Severity, check
from tests.harness.delayed import DELAYS_MS, delayed
from tests.harness.stores import opened


@pytest.mark.parametrize(
    ("levels", "is_warning"), [(DELAYS_MS, False), ((60_000, 5_000, 10_000), True), ((500,), False)]
)
def test_another_table_of_levels_is_a_warning(tmp_path: Path, levels: tuple[int, ...], *, is_warning: bool) -> None:
    """A unit that is due by an older table is a warning; one that fits no table is damage."""
    with opened(tmp_path) as it:
        it.put(delayed(b"one"))
    findings = [finding for finding in check(tmp_path, delay_levels=levels) if "SCHEDULE" in finding.file]
    if levels == DELAYS_MS:
        assert findings == []
        return
    (finding,) = findings
    assert finding.severity is (Severity.WARNING if is_warning else Severity.DAMAGE)
    assert ("by its current level at" in finding.what) is is_warning
