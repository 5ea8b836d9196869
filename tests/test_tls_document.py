"""docs/run/tls.md names settings that exist. Its commands run in tests/documents/test_examples.py."""

import re

from skylarkmq.broker.config.keys import BROKER_KEYS
from tests.documents.examples import ROOT


def test_every_key_of_the_document_is_a_setting() -> None:
    """Each `tls.` key in the document is a setting of the broker."""
    keys = {setting.key for setting in BROKER_KEYS.settings}
    named = set(re.findall(r"`(tls\.[\w.]+\w)(?:=\w+)?`", (ROOT / "docs" / "run" / "tls.md").read_text()))
    assert named
    assert named <= keys
