"""Secret settings never appear: not in printed settings, responses, logs, metrics, errors, tracebacks or a repr.

The tests give every secret setting of the catalogues a value with the text MARK, and search for it in all output. A new
secret setting needs a sample here.
"""

import json
import logging
import subprocess
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from skylarkmq.broker.app.cli import json_of, table_of
from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, NAMESRV_KEYS, SHOWN_TOO
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.parsing import HIDDEN, Given, Setting, from_file
from skylarkmq.broker.config.sections import Machine, load_broker, load_namesrv
from skylarkmq.protocol.codes import RequestCode
from tests.harness.daemon import MQBROKER, variables
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import free_ports
from tests.harness.raw_peer import RawPeer
from tests.harness.scraped import scrape

MARK: Final = "geheim7f3a8b2c4d6e"
JSON_SAMPLES: Final = {
    "innerClientAuthenticationCredentials": f'{{"accessKey":"broker-a","secretKey":"{MARK}"}}',
    "initAuthenticationUser": f'{{"username":"admin","password":"{MARK}"}}',
}
CATALOGUES: Final = {"mqbroker": BROKER_KEYS, "mqnamesrv": NAMESRV_KEYS, "embedded": EMBEDDED_NAMESRV_KEYS}
SETTINGS: Final = {
    setting.key: setting
    for catalogue in CATALOGUES.values()
    for setting in catalogue.settings
    if setting.kind.is_secret
}
UNSUPPORTED: Final = {"metricsGrpcExporterHeader": MARK, "someSecretKey": MARK, "databasePassword": MARK}


def sample(setting: Setting) -> str:
    """Return a valid value that contains MARK."""
    return JSON_SAMPLES.get(setting.key, MARK)


def machine(directory: Path) -> Machine:
    return Machine("broker-a", "127.0.0.1", directory, lambda host: host)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A configuration file with every secret setting of the broker, and unsupported keys with secret names."""
    keys = {key: sample(SETTINGS[key]) for key in SETTINGS if any(s.key == key for s in BROKER_KEYS.settings)}
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={text}\n" for key, text in (keys | UNSUPPORTED).items()))
    path.chmod(0o600)
    return path


def given(conf: Path, directory: Path) -> list[Given]:
    ports = zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True)
    small = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1_000,
             "maxIndexNum": 4_000, "storePathRootDir": directory / "store", **dict(ports)}  # fmt: skip
    return [*from_file(conf.read_text(), str(conf)), *(Given(key, str(value), "test") for key, value in small.items())]


def forms(value: Any) -> Iterator[str]:
    yield from (repr(value), str(value), f"{value}")


def test_there_are_secret_settings() -> None:
    """The walk below is not empty, and each sample is valid."""
    assert {"tls.server.keyPassword", "innerClientAuthenticationCredentials"} <= set(SETTINGS)
    assert all(setting.kind.parse(sample(setting)) for setting in SETTINGS.values())


def test_printed_settings_hide_secrets(conf: Path, tmp_path: Path) -> None:
    """In the table, in JSON, and in every form of the configuration itself."""
    loaded = load_broker(given(conf, tmp_path), machine(tmp_path))
    shown = {row.key: row.value for row in loaded.effective}
    for key, setting in SETTINGS.items():
        assert shown[key] == HIDDEN
        assert MARK not in "".join(forms(getattr(getattr(loaded.config, setting.section), setting.field)))
    for text in (table_of(loaded.effective), json_of(loaded.effective), *forms(loaded)):
        assert MARK not in text
    names = load_namesrv(
        [Given(s.key, sample(s), "t") for s in NAMESRV_KEYS.settings if s.kind.is_secret], machine(tmp_path)
    )
    assert MARK not in "".join((table_of(names.effective), json_of(names.effective), *forms(names)))


@pytest.mark.parametrize("key", sorted(JSON_SAMPLES.keys() & SETTINGS.keys()))
@pytest.mark.parametrize(
    "text", [MARK, f'{{"{MARK}"', f'["{MARK}"]', f'{{"accessKey":["{MARK}"],"username":["{MARK}"]}}']
)
def test_errors_hide_an_invalid_secret(key: str, text: str, tmp_path: Path) -> None:
    """The error names the key and the expected form; its traceback has no value either."""
    with pytest.raises(StartError, match=f"{key}.*: expected JSON") as caught:
        load_broker([Given(key, text, "b.conf:1")], machine(tmp_path))
    assert MARK not in "".join(traceback.format_exception(caught.value))


async def test_changes_at_run_time_hide_secrets(conf: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in the settings that requests 26 and 319 return; the file gets the value, for its owner only."""
    caplog.set_level(logging.DEBUG)
    loaded = load_broker(from_file("brokerName=b\n", str(conf)), machine(tmp_path))._replace(file=conf)
    conf.write_text("brokerName=b\n")
    conf.chmod(0o644)
    settings = LiveSettings(loaded, lambda: 1_000)
    remotes = [
        RemoteSettings(settings, BROKER_KEYS, SHOWN_TOO, lambda: ()),
        RemoteSettings(settings, EMBEDDED_NAMESRV_KEYS, {}, lambda: ()),
    ]
    changed = {key: sample(setting) for key, setting in SETTINGS.items() if "." not in key}
    for key, text in (changed | UNSUPPORTED).items():
        await remotes[0].change(f"{key}={text}".encode())
        await remotes[0].change(f"{key}=[{text}".encode())
    for remote in remotes:
        assert MARK not in remote.text()
    assert MARK not in caplog.text
    assert conf.read_text().count(MARK) == len(changed) + 1  # the unsupported key that RocketMQ has
    assert conf.stat().st_mode & 0o777 == 0o600


async def test_a_running_broker_hides_secrets(conf: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In its log, its metrics, and the responses with settings and runtime information."""
    caplog.set_level(logging.DEBUG)
    loaded = load_broker([*given(conf, tmp_path), Given("namesrvAuth", "true", "test")], machine(tmp_path))
    broker = Broker(loaded.config, LiveSettings(loaded, lambda: 1_000), alone=False)
    await broker.start()
    try:
        assert broker.parts.registration.registrar.registered
        ports = {RequestCode.GET_BROKER_CONFIG: loaded.config.listen.port}
        ports[RequestCode.GET_BROKER_RUNTIME_INFO] = loaded.config.listen.port
        assert loaded.config.namesrv is not None
        ports[RequestCode.GET_NAMESRV_CONFIG] = loaded.config.namesrv.listen_port
        for code, port in ports.items():
            async with await RawPeer.connect(port) as peer:
                response = await peer.call(code)
                assert response.code == 0
                assert MARK not in f"{response}"
        page = broker.parts.pages.metrics_page()
        assert page is not None
        assert MARK not in "".join(
            map(repr, (broker, broker.parts, broker.parts.access, broker.parts.registration.outbound, page))
        )
        assert MARK not in (await scrape(loaded.config.ops.port)).text
    finally:
        await broker.stop()
    assert MARK not in caplog.text
    assert "registered name_server=" in caplog.text


@pytest.mark.daemon
@pytest.mark.parametrize("arguments", [("-p",), ("-p", "--json"), ("--set", f"someSecret:{MARK}")])
def test_the_command_hides_secrets(conf: Path, arguments: tuple[str, ...]) -> None:
    """On stdout and on stderr, also of a start that fails."""
    command: list[str | Path] = [*MQBROKER, "-c", conf, *arguments]
    done = subprocess.run(
        command, env=variables({}), capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False
    )
    assert MARK not in done.stdout + done.stderr
    assert ("innerClientAuthenticationCredentials" in done.stdout) == ("-p" in arguments)


@pytest.mark.daemon
def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    """A variable with `_FILE` names it; if others can read it, the start is refused with strictSecretFiles, and a
    missing file is named, without a traceback."""
    path = tmp_path / "credentials"
    path.write_text(JSON_SAMPLES["innerClientAuthenticationCredentials"] + "\n")
    path.chmod(0o644)
    named = {"innerClientAuthenticationCredentials_FILE": path}

    def run(settings: dict[str, Path], *arguments: str) -> subprocess.CompletedProcess[str]:
        given: dict[str, Any] = {"cwd": tmp_path, "env": variables(settings), "timeout": PROCESS_LIMIT_S}
        return subprocess.run([*MQBROKER, *arguments], capture_output=True, text=True, check=False, **given)

    shown = run(named, "-p", "--json").stdout
    assert json.loads(shown)["innerClientAuthenticationCredentials"] == {
        "value": HIDDEN,
        "origin": "environment SKYLARK_innerClientAuthenticationCredentials_FILE",
    }
    strict = run(named, "--set", "strictSecretFiles=true")
    assert strict.returncode == 1
    assert strict.stderr == f"mqbroker: {path}: other users can read this file with secrets (strictSecretFiles=true)\n"
    missing = run({"innerClientAuthenticationCredentials_FILE": tmp_path / "none"})
    assert missing.stderr == f"mqbroker: cannot read {tmp_path / 'none'}: No such file or directory\n"
    assert MARK not in shown + strict.stdout + strict.stderr + missing.stdout + missing.stderr
