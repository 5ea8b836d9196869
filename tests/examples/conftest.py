"""The broker of a test: that of the fixture `mq_broker`, with the settings of its marker."""

from typing import Any

import pytest


@pytest.fixture
def namesrv(mq_broker: Any) -> str:
    """Return the address of the broker's name server."""
    address: str = mq_broker.namesrv
    return address
