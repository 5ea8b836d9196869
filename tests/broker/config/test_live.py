"""Settings of a running daemon: who hears of a change, what an outsider may do, and what the file says afterwards."""

import logging
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.config.java_properties import parse_properties
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, SHOWN_TOO
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.parsing import from_environment, from_file, from_flags
from skylarkmq.broker.config.protected_keys import ALWAYS
from skylarkmq.broker.config.sections import DaemonConfig, Loaded, Machine, load_broker
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

MACHINE = Machine(host_name="host", address="10.0.0.5", home=Path("/home/mq"), resolve=str)


class Asked:
    """A door to the settings that a text gives, and what followers were told."""

    def __init__(self, text: str = "", path: Path | None = None, *more: Any) -> None:
        given = [*from_file(text, "b.conf"), *more]
        self.settings = LiveSettings[DaemonConfig](load_broker(given, MACHINE)._replace(file=path), lambda: 1_000)
        self.door = RemoteSettings(
            self.settings,
            BROKER_KEYS,
            SHOWN_TOO,
            lambda: (*ALWAYS, *self.settings.config.broker.config_black_list),
        )
        self.told: list[Any] = []

    def shown(self) -> dict[str, str]:
        return {key: value for _, key, value in parse_properties(self.door.text(), "26")}


async def test_a_follower_hears_of_what_it_looks_at_and_of_nothing_else() -> None:
    """It is called once for a change of its own settings, with what they have become."""
    it = Asked()
    it.settings.subscribe(lambda config: (config.broker.trace_on, config.broker.region_id), it.told.append)
    assert await it.door.change(b"traceOn=false\nregionId=R\nlongPollingEnable=false") == {
        "traceOn",
        "regionId",
        "longPollingEnable",
    }
    assert await it.door.change(b"slaveReadEnable=true") == {"slaveReadEnable"}
    assert await it.door.change(b"traceOn=false") == set()
    assert it.told == [(False, "R")]
    assert not it.settings.config.broker.long_polling_enable


async def test_the_log_says_when_a_change_takes_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Now, if a part follows it; else at the next start."""
    it = Asked()
    it.settings.subscribe(lambda config: config.broker.trace_on, it.told.append)
    with caplog.at_level(logging.INFO):
        await it.door.change(b"traceOn=false\nbrokerName=b")
    told = [record.getMessage() for record in caplog.records if "effect" in record.getMessage()]
    assert told == [
        "setting changed key=traceOn value='false' effect=now",
        "setting changed key=brokerName value='b' effect=at the next start",
    ]


async def test_what_nobody_can_act_on_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown keys, bad values and values that a struct refuses change nothing, and the log names them."""
    it = Asked()
    before, version = it.shown(), it.door.version
    await it.door.change(b"noSuchKey=1\nfileReservedTime=soon\ntls.server.mode=disabled\naclEnable=true")
    assert (it.shown(), it.door.version) == (before, version)
    warnings = [record.getMessage() for record in caplog.records]
    assert any("'noSuchKey'" in text for text in warnings)
    assert any("fileReservedTime" in text and "'soon'" in text for text in warnings)


async def test_every_change_has_a_version() -> None:
    """Who keeps a copy sees that it is out of date."""
    it = Asked()
    assert it.door.version.counter == 1
    await it.door.change(b"traceOn=false")
    await it.door.change(b"sendMessageThreadPoolNums=4")
    assert it.door.version.counter == 3
    assert it.shown()["sendMessageThreadPoolNums"] == "4"


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "kvConfigPath", "traceOn"])
async def test_the_black_list_refuses_the_whole_request(key: str) -> None:
    """Nothing of it is changed; the list goes on with what an operator put there."""
    it = Asked("configBlackList=traceOn;regionId")
    with pytest.raises(RequestError, match="black list") as refused:
        await it.door.change(f"longPollingEnable=false\n{key}=x".encode())
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert it.settings.config.broker.long_polling_enable


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\xff"])
async def test_a_text_that_is_none_is_refused(text: bytes) -> None:
    """Broken escapes, bytes that are no text."""
    with pytest.raises(RequestError, match="string2Properties error"):
        await Asked().door.change(text)


def test_the_tools_of_4_9_find_every_key_that_they_ask_for() -> None:
    """Its exportConfigs fails if one of them is missing."""
    wanted = """
    brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType maxMessageSize
    messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS autoCreateTopicEnable
    autoCreateSubscriptionGroup
    """
    shown = Asked("unknownKey=kept\nsendMessageThreadPoolNums=16\ntls.server.keyPassword=secret").shown()
    assert set(wanted.split()) <= shown.keys()
    assert shown.items() >= {"brokerRole": "ASYNC_MASTER", "fileReservedTime": "72", "traceOn": "true"}.items()
    assert shown.items() >= {"unknownKey": "kept", "sendMessageThreadPoolNums": "16"}.items()
    assert not any("." in key or "secret" in value for key, value in shown.items())


async def test_the_file_has_what_was_changed_and_a_start_reads_it(tmp_path: Path) -> None:
    """Comments stay; after a restart the settings are those that were asked for, also those of the next start."""
    path = tmp_path / "broker.conf"
    path.write_text("# mine\ntraceOn=true\n")
    it = Asked(path.read_text(), path)
    await it.door.change(b"traceOn=false\nbrokerName=b\nnoSuchKey=1\nfileReservedTime=soon")
    assert path.read_text() == "# mine\ntraceOn=false\nbrokerName=b\n"
    again = load_broker(from_file(path.read_text(), "b.conf"), MACHINE).config
    assert (again.broker.trace_on, again.broker.broker_name) == (False, "b")


async def test_a_file_that_cannot_be_written_is_told_and_the_change_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in RocketMQ: the setting is changed for this run."""
    it = Asked("", tmp_path / "none" / "broker.conf")
    await it.door.change(b"traceOn=false")
    assert not it.settings.config.broker.trace_on
    assert [record.levelname for record in caplog.records if "this run only" in record.getMessage()] == ["ERROR"]


async def test_what_a_variable_or_a_flag_says_wins_again_at_a_start(caplog: pytest.LogCaptureFixture) -> None:
    """The log warns of it."""
    more = [*from_environment({"SKYLARK_TRACE_ON": "true"}, BROKER_KEYS), *from_flags(["regionId=R"])]
    it = Asked("longPollingEnable=true", None, *more)
    await it.door.change(b"traceOn=false\nregionId=S\nlongPollingEnable=false")
    told = [record.getMessage() for record in caplog.records if "overridden" in record.getMessage()]
    assert [text.split("key=")[1] for text in told] == [
        "traceOn given=environment SKYLARK_TRACE_ON",
        "regionId given=--set",
    ]


async def test_the_door_of_a_name_server_inside_shows_and_changes_its_own_keys_only() -> None:
    """318 does not reach the broker's settings."""
    it = Asked()
    door = RemoteSettings(it.settings, EMBEDDED_NAMESRV_KEYS, {}, lambda: ALWAYS)
    await door.change(b"orderMessageEnable=true\ntraceOn=false")
    assert it.settings.config.namesrv is not None
    assert it.settings.config.namesrv.order_message_enable
    assert it.settings.config.broker.trace_on
    assert "orderMessageEnable=true\n" in door.text()
    assert "traceOn" not in door.text()


def test_a_configuration_by_itself_will_do() -> None:
    """Nothing needs to be known about where it came from."""
    config = load_broker((), MACHINE).config
    settings = LiveSettings(Loaded(config), lambda: 0)
    assert settings.statistics().changes == 0
    assert settings.config is config
    assert "LiveSettings" in repr(settings)
