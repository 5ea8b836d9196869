"""Settings of a running daemon: subscriptions to changes, remote changes, and the content of the file afterwards."""

import logging
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.base.protected_keys import ALWAYS
from skylarkmq.broker.config.java_properties import parse_properties
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, SHOWN_TOO
from skylarkmq.broker.config.live import CHANGED, LiveSettings, RemoteSettings
from skylarkmq.broker.config.parsing import from_environment, from_file, from_flags
from skylarkmq.broker.config.sections import DaemonConfig, Loaded, Machine, load_broker
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

MACHINE = Machine(host_name="host", address="10.0.0.5", home=Path("/home/mq"), resolve=str)


class RemoteAccess:
    """Remote access to the settings of a text, and the values that subscribers received."""

    def __init__(self, text: str = "", path: Path | None = None, *more: Any) -> None:
        given = [*from_file(text, "b.conf"), *more]
        self.settings = LiveSettings[DaemonConfig](load_broker(given, MACHINE)._replace(file=path), lambda: 1_000)
        self.remote = RemoteSettings(
            self.settings,
            BROKER_KEYS,
            SHOWN_TOO,
            lambda: (*ALWAYS, *self.settings.config.broker.config_black_list),
        )
        self.received: list[Any] = []

    def shown(self) -> dict[str, str]:
        return {key: value for _, key, value in parse_properties(self.remote.text(), "26")}


async def test_a_subscriber_gets_only_changes_of_its_own_values() -> None:
    """It is called once per change of its own values, with the new ones."""
    it = RemoteAccess()
    it.settings.subscribe(lambda config: (config.broker.trace_on, config.broker.region_id), it.received.append)
    assert await it.remote.change(b"traceOn=false\nregionId=R\nlongPollingEnable=false") == {
        "traceOn",
        "regionId",
        "longPollingEnable",
    }
    assert await it.remote.change(b"slaveReadEnable=true") == {"slaveReadEnable"}
    assert await it.remote.change(b"traceOn=false") == set()
    assert it.received == [(False, "R")]
    assert not it.settings.config.broker.long_polling_enable


async def test_the_log_says_when_a_change_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Now, if a part subscribes to the setting; otherwise at the next start."""
    it = RemoteAccess()
    it.settings.subscribe(lambda config: config.broker.trace_on, it.received.append)
    with caplog.at_level(logging.INFO):
        await it.remote.change(b"traceOn=false\nbrokerName=b")
    messages = [record.getMessage() for record in caplog.records if "effect" in record.getMessage()]
    assert messages == [
        "setting changed key=traceOn value='false' effect=now",
        "setting changed key=brokerName value='b' effect=at the next start",
    ]


async def test_invalid_changes_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown keys, invalid values and values that a struct rejects change nothing, and the log names them."""
    it = RemoteAccess()
    before, version = it.shown(), it.remote.version
    await it.remote.change(b"noSuchKey=1\nfileReservedTime=soon\ntls.server.mode=disabled\nslaveTimeout=never")
    assert (it.shown(), it.remote.version) == (before, version)
    warnings = [record.getMessage() for record in caplog.records]
    assert any("'noSuchKey'" in text for text in warnings)
    assert any("fileReservedTime" in text and "'soon'" in text for text in warnings)


async def test_every_change_has_a_version() -> None:
    """A reader with a copy can see that it is out of date."""
    it = RemoteAccess()
    assert it.remote.version.counter == 1
    await it.remote.change(b"traceOn=false")
    await it.remote.change(b"sendMessageThreadPoolNums=4")
    assert it.remote.version.counter == 3
    assert it.shown()["sendMessageThreadPoolNums"] == "4"


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "kvConfigPath", "traceOn"])
async def test_a_protected_key_refuses_the_whole_request(key: str) -> None:
    """Nothing is changed; keys of the operator's list are protected too."""
    it = RemoteAccess("configBlackList=traceOn;regionId")
    with pytest.raises(RequestError, match="black list") as refused:
        await it.remote.change(f"longPollingEnable=false\n{key}=x".encode())
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert it.settings.config.broker.long_polling_enable


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\xff"])
async def test_an_invalid_properties_text_is_refused(text: bytes) -> None:
    """Invalid escapes, and bytes that are not UTF-8."""
    with pytest.raises(RequestError, match="string2Properties error"):
        await RemoteAccess().remote.change(text)


def test_the_tools_of_4_9_find_every_key_that_they_read() -> None:
    """Their exportConfigs fails if one of them is missing."""
    wanted = """
    brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType maxMessageSize
    messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS autoCreateTopicEnable
    autoCreateSubscriptionGroup
    """
    shown = RemoteAccess("unknownKey=kept\nsendMessageThreadPoolNums=16\ntls.server.keyPassword=secret").shown()
    assert set(wanted.split()) <= shown.keys()
    assert shown.items() >= {"brokerRole": "ASYNC_MASTER", "fileReservedTime": "72", "traceOn": "true"}.items()
    assert shown.items() >= {"unknownKey": "kept", "sendMessageThreadPoolNums": "16"}.items()
    assert not any("." in key or "secret" in value for key, value in shown.items())


async def test_changes_are_in_the_file_and_survive_a_restart(tmp_path: Path) -> None:
    """Comments stay; after a restart all changed settings have their new values, including those of the next start."""
    path = tmp_path / "broker.conf"
    path.write_text("# mine\ntraceOn=true\n")
    it = RemoteAccess(path.read_text(), path)
    await it.remote.change(b"traceOn=false\nbrokerName=b\nnoSuchKey=1\nfileReservedTime=soon")
    assert path.read_text() == "# mine\ntraceOn=false\nbrokerName=b\n"
    again = load_broker(from_file(path.read_text(), "b.conf"), MACHINE).config
    assert (again.broker.trace_on, again.broker.broker_name) == (False, "b")


async def test_a_change_takes_effect_if_the_file_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in RocketMQ: the setting is changed for this run, and an error is logged."""
    it = RemoteAccess("", tmp_path / "none" / "broker.conf")
    await it.remote.change(b"traceOn=false")
    assert not it.settings.config.broker.trace_on
    assert [record.levelname for record in caplog.records if "this run only" in record.getMessage()] == ["ERROR"]


async def test_a_change_of_a_key_set_by_variable_or_flag_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The variable or the flag overrides the file at the next start."""
    more = [*from_environment({"SKYLARK_TRACE_ON": "true"}, BROKER_KEYS), *from_flags(["regionId=R"])]
    it = RemoteAccess("longPollingEnable=true", None, *more)
    await it.remote.change(b"traceOn=false\nregionId=S\nlongPollingEnable=false")
    messages = [record.getMessage() for record in caplog.records if "overridden" in record.getMessage()]
    assert [text.split("key=")[1] for text in messages] == [
        "traceOn given=environment SKYLARK_TRACE_ON",
        "regionId given=--set",
    ]


async def test_an_embedded_name_server_gives_access_to_its_own_keys_only() -> None:
    """UPDATE_NAMESRV_CONFIG (318) does not reach the broker's settings."""
    it = RemoteAccess()
    remote = RemoteSettings(it.settings, EMBEDDED_NAMESRV_KEYS, {}, lambda: ALWAYS)
    await remote.change(b"orderMessageEnable=true\ntraceOn=false")
    assert it.settings.config.namesrv is not None
    assert it.settings.config.namesrv.order_message_enable
    assert it.settings.config.broker.trace_on
    assert "orderMessageEnable=true\n" in remote.text()
    assert "traceOn" not in remote.text()


def test_live_settings_need_only_a_configuration() -> None:
    """The origin of the settings is optional."""
    config = load_broker((), MACHINE).config
    settings = LiveSettings(Loaded(config), lambda: 0)
    assert settings.statistics().changes == 0
    assert settings.config is config
    assert "LiveSettings" in repr(settings)


async def test_effective_settings_follow_changes() -> None:
    """The current value of each key comes with its origin; a changed one has the origin CHANGED. Secrets are hidden."""
    secret = '{"username":"root","password":"hidden-1"}'
    it = RemoteAccess(f"traceOn=true\ninitAuthenticationUser={secret}")
    await it.remote.change(b"traceOn=false\nregionId=R")
    rows = {row.key: (row.value, row.origin) for row in it.settings.effective(BROKER_KEYS)}
    assert rows["traceOn"] == ("false", CHANGED)
    assert rows["regionId"] == ("R", CHANGED)
    assert rows["initAuthenticationUser"] == ("(hidden)", "b.conf:2")
    assert rows["longPollingEnable"] == ("true", "default")
