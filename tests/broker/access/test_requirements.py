"""Every request code that a broker or a name server serves has a row in the table of requirements."""

from pathlib import Path

from skylarkmq.broker.access.requirements import BROKER_REQUIREMENTS, NAMESRV_REQUIREMENTS
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.broker.parts import Parts


async def test_every_served_code_has_a_requirement(tmp_path: Path) -> None:
    """A processor without a row, or a row without a processor, is a mistake."""
    machine = Machine("broker", "127.0.0.1", tmp_path, lambda host: host)
    parts = Parts(load_broker([Given("storePathRootDir", str(tmp_path / "store"), "a test")], machine).config)
    assert parts.name_server is not None
    assert set(parts.server.dispatcher.codes) == set(BROKER_REQUIREMENTS)
    assert set(parts.name_server.remoting.dispatcher.codes) == set(NAMESRV_REQUIREMENTS)
