"""Every request code that a broker or a name server serves has a row in the table of requirements."""

from pathlib import Path

import pytest

from skylarkmq.broker.access.requests import table
from skylarkmq.broker.access.requests.table import BROKER_REQUIREMENTS, NAMESRV_REQUIREMENTS
from skylarkmq.broker.app.parts import Parts
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.protocol.codes import RequestCode


def test_a_code_has_one_row() -> None:
    """A second row for a code is found when the table is imported; broker and name server share no code."""
    row = BROKER_REQUIREMENTS[RequestCode.PULL_MESSAGE]
    with pytest.raises(ValueError, match="two rows"):
        table._by_code(row, row)
    assert not set(BROKER_REQUIREMENTS) & set(NAMESRV_REQUIREMENTS)


async def test_every_served_code_has_a_requirement(tmp_path: Path) -> None:
    """A processor without a row, or a row without a processor, is a mistake. Requests for accounts are served only with
    access control."""
    parts = parts_of(tmp_path)
    assert parts.registration.name_server is not None
    with_accounts = parts_of(tmp_path, "aclEnable").server.dispatcher.codes
    assert set(parts.server.dispatcher.codes) < set(with_accounts)
    assert set(with_accounts) == set(BROKER_REQUIREMENTS)
    assert set(parts.registration.name_server.remoting.dispatcher.codes) == set(NAMESRV_REQUIREMENTS)


def parts_of(directory: Path, *enabled: str) -> Parts:
    """Return the parts of a broker with these features."""
    machine = Machine("broker", "127.0.0.1", directory, lambda host: host)
    given = [Given(key, "true", "a test") for key in enabled]
    given.append(Given("storePathRootDir", str(directory / "store"), "a test"))
    return Parts(load_broker(given, machine).config)
