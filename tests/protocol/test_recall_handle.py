"""Handles for the recall of timer messages."""

import base64

import pytest

from skylarkmq.protocol.recall_handle import RecallHandle


def test_a_handle_is_rocketmqs_text() -> None:
    """URL-safe base64 with padding; `decode` reads what `encode` returns."""
    handle = RecallHandle("T", "broker-a", "1700000000001", "KEY?>")
    text = handle.encode()
    assert base64.urlsafe_b64decode(text) == b"v1 T broker-a 1700000000001 KEY?>"
    assert RecallHandle.decode(text) == handle


@pytest.mark.parametrize("text", ["", "v1 a b c d", "djE=", base64.b64encode(b"v2 a b c d").decode(), "ÿ", "/w=="])
def test_invalid_handles_raise_value_error(text: str) -> None:
    """An empty text, invalid base64, too few parts, another version, invalid UTF-8."""
    with pytest.raises(ValueError, match=r"."):
        RecallHandle.decode(text)
