"""The black list: 25 and 318 refuse every key that moves an address, a path or a name server, or sizes files."""

import re
from pathlib import Path

import pytest

from skylarkmq.broker.config import keys
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.parsing import Catalogue, from_file
from skylarkmq.broker.config.protected_keys import ALWAYS, DEFAULT
from skylarkmq.broker.config.sections import Machine, load_broker, load_namesrv
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

MACHINE = Machine(host_name="host", address="10.0.0.5", home=Path("/home/mq"), resolve=str)
REFUSED_KINDS = (keys.PATH, keys.FILE, keys.HOST, keys.ADDRESSES, keys.PORT, keys.PORT_OR_OFF, keys.QUEUE_SEGMENT)
REFUSED_NAMES = re.compile(
    r"path|addr|port$|portfor|host$|brokerip|mappedfilesize|hashslot|maxindexnum|peers$|home$", re.IGNORECASE
)
HARMLESS = {
    "searchBcqByCacheEnable",
    "compatibleWithOldNameSrv",
    "fetchNamesrvAddrInterval",  # a period
    "updateNameServerAddrPeriod",  # a period
    "serverSocketBacklog",
    "preferLocalHost",
    "maxRouteAddresses",  # a count
}


def must_be_refused(catalogue: Catalogue) -> list[str]:
    """Keys that can be asked for (those with dots cannot), by their kind or by their name."""
    by_kind = [s.key for s in catalogue.settings if s.kind in REFUSED_KINDS or s.kind.expected.startswith("an IP")]
    known = (*catalogue.inactive, *catalogue.only, *(setting.key for setting in catalogue.settings))
    by_name = [key for key in known if REFUSED_NAMES.search(key) and key not in HARMLESS]
    return sorted({key for key in by_kind + by_name if "." not in key})


@pytest.mark.parametrize("catalogue", [BROKER_KEYS, NAMESRV_KEYS, EMBEDDED_NAMESRV_KEYS])
def test_every_key_of_a_refused_kind_is_on_the_list(catalogue: Catalogue) -> None:
    """A new key with an address, a path or a size of files has to be put on the list, or among the harmless ones."""
    assert [key for key in must_be_refused(catalogue) if key not in (*ALWAYS, *DEFAULT)] == []


def test_the_list_names_no_key_that_is_unknown() -> None:
    """A key that was renamed does not drop off the list unnoticed."""
    known = {*BROKER_KEYS.known().values(), *NAMESRV_KEYS.known().values()}
    assert set(DEFAULT) <= known


def broker_door(text: str = "") -> RemoteSettings:
    settings = LiveSettings(load_broker([*from_file(text, "b.conf")], MACHINE), lambda: 0)
    return RemoteSettings(settings, BROKER_KEYS, {}, lambda: (*ALWAYS, *settings.config.broker.config_black_list))


@pytest.mark.parametrize("key", must_be_refused(BROKER_KEYS))
async def test_25_refuses(key: str) -> None:
    """The code and the remark are RocketMQ's, and nothing of the request is changed."""
    door = broker_door()
    before = door.text()
    with pytest.raises(RequestError) as refused:
        await door.change(f"traceOn=false\n{key}=1".encode())
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert str(refused.value.args[0]) == "Can not update config in black list."
    assert door.text() == before


@pytest.mark.parametrize("key", must_be_refused(NAMESRV_KEYS))
async def test_318_refuses(key: str) -> None:
    """A name server by itself has the same list."""
    settings = LiveSettings(load_namesrv([], MACHINE), lambda: 0)
    black_list = (*ALWAYS, *settings.config.namesrv.config_black_list)
    door = RemoteSettings(settings, NAMESRV_KEYS, {}, lambda: black_list)
    with pytest.raises(RequestError, match="black list"):
        await door.change(f"orderMessageEnable=true\n{key}=1".encode())
    assert not settings.config.namesrv.order_message_enable


async def test_an_operator_chooses_the_list() -> None:
    """`configBlackList` replaces the default; the list itself and the paths of configuration files stay refused."""
    door = broker_door("configBlackList=regionId")
    assert await door.change(b"listenPort=10999") == {"listenPort"}
    for key in ("regionId", *ALWAYS):
        with pytest.raises(RequestError, match="black list"):
            await door.change(f"{key}=x".encode())
