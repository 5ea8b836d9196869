"""Untrusted text in log lines and on a terminal."""

import io
import json
import logging
from typing import Any

import pytest

from skylarkmq.broker.app.cli import LOG_FORMAT
from skylarkmq.broker.base.printable import LineFormatter, printable, printable_json

FORGED = "g\n2026-01-01 00:00:00.000 INFO broker stopping signal=SIGTERM\r\x1b[2J\x9b31m\x7f\u202eabc\u2028\x85\0"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Orders", "Orders"),
        ("Grüße 你好", "Grüße 你好"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\0\x7f\x85\x9b", r"\x00\x7f\x85\x9b"),
        ("\u202eabc\u2066\u2028\u200b", r"\u202eabc\u2066\u2028\u200b"),
        ("\U000e0001\ud800", r"\U000e0001\ud800"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, shown: str) -> None:
    """C0, C1, DEL, bidirectional overrides, separators and lone surrogates; letters of all scripts stay."""
    assert printable(text) == shown


def test_escaped_json_has_the_same_value() -> None:
    """The document decodes to the same value, and has no effect on a terminal."""
    document = json.dumps({"name": FORGED + "\U000e0001"}, ensure_ascii=False).encode()
    shown = printable_json(document)
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(document)
    assert printable_json(b'{"a":"plain"}') == '{"a":"plain"}'


@pytest.fixture
def lines() -> Any:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("tests.printable")
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, lambda: stream.getvalue().splitlines()
    logger.removeHandler(handler)
    logger.propagate = True


def test_a_log_record_is_one_line(lines: Any) -> None:
    """Whatever its arguments or its message contain."""
    logger, shown = lines
    logger.warning("group created group=%s", FORGED)
    logger.warning("%s", {"topic": FORGED})
    logger.warning(FORGED)
    assert len(shown()) == 3
    assert all(line.isprintable() for line in shown())
    assert "group created group=g\\n2026-01-01 00:00:00.000 INFO broker stopping" in shown()[0]


def test_no_line_of_a_traceback_looks_like_a_record(lines: Any) -> None:
    """Traceback lines are indented, and the exception's text is escaped; the traceback stays readable."""
    logger, shown = lines
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("failed topic=%s", FORGED, stack_info=True)
    first, *others = shown()
    assert "failed topic=g\\n2026" in first
    assert others
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert "    Traceback (most recent call last):" in others
    assert any("2026-01-01 00:00:00.000 INFO broker stopping" in line for line in others)
