"""Properties files: unchanged lines stay as they were written, and written values are read back."""

import pytest

from skylarkmq.broker.config.java_properties import entry, parse_properties, rewritten

TEXT = """\
# Who it is.
brokerName=broker-a

  maxMessageSize : 10 \\
                   00
! the second one counts
brokerName = broker-b
fileReservedTime 48
"""


def pairs(text: str) -> dict[str, str]:
    return {key: value for _, key, value in parse_properties(text, "t")}


def test_only_the_lines_of_changed_keys_change() -> None:
    """Comments, blank lines and order stay; a repeated key changes at its last occurrence, a continued line becomes
    one."""
    changed = rewritten(TEXT, {"brokerName": "c", "maxMessageSize": "5", "fileReservedTime": "1", "traceOn": "false"})
    assert changed.splitlines() == [
        "# Who it is.",
        "brokerName=broker-a",
        "",
        "maxMessageSize=5",
        "! the second one counts",
        "brokerName=c",
        "fileReservedTime=1",
        "traceOn=false",
    ]


def test_no_change_leaves_the_text_unchanged() -> None:
    """Every byte stays, whatever the line ends are."""
    for text in ("", TEXT, "a=1\r\nb=2\r\n"):
        assert rewritten(text, {}) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "k=v\n"), ("a=1", "a=1\nk=v\n"), ("a=1\r\n", "a=1\r\nk=v\r\n"), ("a=1\\", "a=1\\\nk=v\n")],
)
def test_a_new_key_is_appended(text: str, expected: str) -> None:
    """On a line of its own, with the line end of the others."""
    assert rewritten(text, {"k": "v"}) == expected


@pytest.mark.parametrize(
    "value", ["", "plain", " led by a space", "a\nb=c\r\t\f", "C:\\data\\x", "#no comment", "größe=1"]
)
def test_written_keys_and_values_are_read_back(value: str) -> None:
    """A line end in a value cannot add a second key, and no backslash is lost."""
    for key in ("key", "a key", "k=e:y", "#k", "k\\"):
        assert pairs(entry(key, value)) == {key: value}
        assert pairs(rewritten(TEXT, {key: value}))[key] == value
