"""Protected keys: requests 25 and 318 reject every key that changes an address, a path, a name server or a file
size."""

import re
from pathlib import Path

import pytest

from skylarkmq.broker.base.protected_keys import ALWAYS, DEFAULT
from skylarkmq.broker.config import keys
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.parsing import Catalogue, from_file
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
    """Return the keys that can be changed remotely (those with dots cannot) and must be protected, by kind or by
    name."""
    by_kind = [s.key for s in catalogue.settings if s.kind in REFUSED_KINDS or s.kind.expected.startswith("an IP")]
    known = (*catalogue.inactive, *catalogue.only, *(setting.key for setting in catalogue.settings))
    by_name = [key for key in known if REFUSED_NAMES.search(key) and key not in HARMLESS]
    return sorted({key for key in by_kind + by_name if "." not in key})


@pytest.mark.parametrize("catalogue", [BROKER_KEYS, NAMESRV_KEYS, EMBEDDED_NAMESRV_KEYS])
def test_every_key_of_a_protected_kind_is_on_the_list(catalogue: Catalogue) -> None:
    """A new key with an address, a path or a file size has to be added to the list, or to the harmless keys."""
    assert [key for key in must_be_refused(catalogue) if key not in (*ALWAYS, *DEFAULT)] == []


def test_the_list_contains_only_known_keys() -> None:
    """A renamed key cannot drop off the list unnoticed."""
    known = {*BROKER_KEYS.known().values(), *NAMESRV_KEYS.known().values()}
    assert set(DEFAULT) <= known


def remote_settings(text: str = "") -> RemoteSettings:
    settings = LiveSettings(load_broker([*from_file(text, "b.conf")], MACHINE), lambda: 0)
    return RemoteSettings(settings, BROKER_KEYS, {}, lambda: (*ALWAYS, *settings.config.broker.config_black_list))


@pytest.mark.parametrize("key", must_be_refused(BROKER_KEYS))
async def test_update_broker_config_rejects_protected_keys(key: str) -> None:
    """The code and the remark are RocketMQ's, and nothing is changed."""
    remote = remote_settings()
    before = remote.text()
    with pytest.raises(RequestError) as refused:
        await remote.change(f"traceOn=false\n{key}=1".encode())
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert str(refused.value.args[0]) == "Can not update config in black list."
    assert remote.text() == before


@pytest.mark.parametrize("key", must_be_refused(NAMESRV_KEYS))
async def test_update_namesrv_config_rejects_protected_keys(key: str) -> None:
    """A stand-alone name server has the same list."""
    settings = LiveSettings(load_namesrv([], MACHINE), lambda: 0)
    black_list = (*ALWAYS, *settings.config.namesrv.config_black_list)
    remote = RemoteSettings(settings, NAMESRV_KEYS, {}, lambda: black_list)
    with pytest.raises(RequestError, match="black list"):
        await remote.change(f"orderMessageEnable=true\n{key}=1".encode())
    assert not settings.config.namesrv.order_message_enable


async def test_an_operator_can_replace_the_list() -> None:
    """`configBlackList` replaces the default; the list itself and the paths of configuration files stay protected."""
    remote = remote_settings("configBlackList=regionId")
    assert await remote.change(b"listenPort=10999") == {"listenPort"}
    for key in ("regionId", *ALWAYS):
        with pytest.raises(RequestError, match="black list"):
            await remote.change(f"{key}=x".encode())
