"""Filter expressions over records."""

import zlib

import numpy as np
import pyarrow.compute as pc
import pytest

from skylarkmq.clients.arrow import columns
from skylarkmq.clients.arrow.columns import walk
from skylarkmq.clients.arrow.row_filter import RowFilter, fields_of
from skylarkmq.protocol.codes import SysFlag
from tests.clients.arrow.test_columns import encode_one


def test_the_fields_of_an_expression_are_found() -> None:
    """Nested ones, too, in the order of all columns."""
    expression = (pc.field("tags") == "a") | ((pc.field("queueId") > 1) & pc.field("body").is_valid())
    assert fields_of(expression, decode=True).names == ("body", "queueId", "tags")


def test_properties_are_filtered_as_they_are_decoded() -> None:
    """A map with `decode`, a string without it."""
    buffer = encode_one(properties=b"a\x011\x02") + encode_one(properties=b"a\x012\x02")
    lookup = pc.map_lookup(pc.field("properties"), "a", "first") == "2"
    assert RowFilter(lookup, decode=True).matching(buffer, walk(buffer), None).tolist() == walk(buffer)[1:].tolist()
    text = pc.match_substring(pc.field("properties"), "1")
    assert RowFilter(text, decode=False).matching(buffer, walk(buffer), None).tolist() == walk(buffer)[:1].tolist()


def test_many_rows_keep_their_order() -> None:
    """More rows than Arrow processes at once."""
    one = encode_one()
    buffer = one * 100_000
    starts = np.arange(0, len(buffer), len(one))
    assert RowFilter(pc.field("queueId") == 0, decode=True).matching(buffer, starts, None).tolist() == starts.tolist()


def test_bodies_that_are_too_large_together_are_filtered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All matching rows are returned, in order."""
    monkeypatch.setattr(columns, "MAX_BATCH_BYTES", 2_500)
    bodies = [bytes([number]) * 1_000 for number in range(9)]
    buffer = b"".join(encode_one(body=zlib.compress(body), sys_flag=SysFlag.COMPRESSED) for body in bodies)
    found = RowFilter(pc.field("body") != bodies[4], decode=True).matching(buffer, walk(buffer), None)
    assert found.tolist() == np.delete(walk(buffer), 4).tolist()


def test_an_expression_that_does_not_fit_is_rejected() -> None:
    """Unknown columns, wrong types, no condition, no column."""
    for expression in (pc.field("tag") == "a", pc.field("topic") > 1, pc.field("topic"), pc.scalar(True)):
        with pytest.raises(ValueError, match="filter"):
            RowFilter(expression, decode=True)
