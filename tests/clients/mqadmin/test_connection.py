"""The address, TLS and credentials of a command."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin.connection import Connection, connection_of
from skylarkmq.clients.mqadmin.failures import CommandFailed
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

PROFILES = """
[profiles.default]
namesrv = "default:9876"
access_key = "me"
secret_key_file = "secret"

[profiles.other]
namesrv = "other:9876"
tls = true

[profiles.checked]
[profiles.checked.tls]
trust_cert = "authority.pem"
cert = "own.pem"
key = "/keys/own-key.pem"
check_host_name = false
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose HOME has profiles, and the secret of one."""
    directory = tmp_path / ".config" / "skylark"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(PROFILES)
    write_secret(directory / "secret", "open-sesame\n")
    for name in ("authority.pem", "own.pem"):
        (directory / name).touch()
    return {"HOME": str(tmp_path)}


def write_secret(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.parametrize(
    ("namesrv", "profile", "variables", "address"),
    [
        ("given:1", "other", {"NAMESRV_ADDR": "variable:1"}, "given:1"),
        (None, "other", {"NAMESRV_ADDR": "variable:1"}, "variable:1"),
        (None, "other", {"SKYLARK_PROFILE": "default"}, "other:9876"),
        (None, None, {"SKYLARK_PROFILE": "other"}, "other:9876"),
        (None, None, {}, "default:9876"),
        (None, "checked", {}, "127.0.0.1:9876"),
    ],
)
def test_the_address_is_the_first_that_is_given(
    environment: dict[str, str], namesrv: str | None, profile: str | None, variables: Mapping[str, str], address: str
) -> None:
    """By the option, the variable, the profile; else that of a local name server."""
    if profile == "checked":
        rewrite(environment, "/keys/own-key.pem", "secret")
    assert connection_of(namesrv, profile, environment | dict(variables)).namesrv == address


def rewrite(environment: Mapping[str, str], old: str, new: str) -> None:
    path = Path(environment["HOME"]) / ".config/skylark/config.toml"
    path.write_text(path.read_text().replace(old, new))


def test_credentials_of_the_default_profile_go_to_its_address_only(environment: dict[str, str]) -> None:
    """An address without a profile gets none."""
    signed = connection_of(None, None, environment)
    assert signed.credentials == Credentials("me", "open-sesame")
    assert connection_of("elsewhere:1", None, environment) == Connection("elsewhere:1")
    assert connection_of("elsewhere:1", "default", environment).credentials == signed.credentials
    assert "open-sesame" not in repr(signed)


def test_tls_settings_come_from_the_profile(environment: dict[str, str]) -> None:
    """Paths are relative to the file."""
    directory = Path(environment["HOME"]) / ".config/skylark"
    rewrite(environment, "/keys/own-key.pem", "secret")
    assert connection_of(None, "other", environment).tls == TlsSettings()
    assert connection_of(None, "checked", environment).tls == TlsSettings(
        trust_cert_path=directory / "authority.pem",
        cert_path=directory / "own.pem",
        key_path=directory / "secret",
        check_host_name=False,
    )


@pytest.mark.parametrize(
    ("old", "new", "profile", "cause"),
    [
        ("[profiles.default]", "[profiles.default", None, "config.toml"),
        ('namesrv = "default:9876"', "namesrv = 9876", None, "profiles"),
        ('namesrv = "default:9876"', 'nameserver = "x"', None, "nameserver"),
        ('access_key = "me"', "", None, "access_key and secret_key_file go together"),
        ('"secret"', '"missing"', None, "missing"),
        ('"secret"', '"empty"', None, "empty is empty"),
        ('"secret"', '"exposed"', None, "chmod 600"),
        ('"secret"', '"binary"', None, "binary is not UTF-8 text"),
        ("/keys/own-key.pem", "exposed", "checked", "chmod 600"),
        ('"authority.pem"', '"absent.pem"', "checked", "absent.pem does not exist"),
        ("", "", "unknown", "Its profiles: checked, default, other."),
    ],
)
def test_an_invalid_profile_is_named(
    environment: dict[str, str], old: str, new: str, profile: str | None, cause: str
) -> None:
    """Also a file with a secret that other users can read."""
    directory = Path(environment["HOME"]) / ".config/skylark"
    write_secret(directory / "empty", "\n")
    write_secret(directory / "exposed", "open-sesame", 0o640)
    write_secret(directory / "binary", "")
    (directory / "binary").write_bytes(b"open-sesame\xff")
    if profile == "checked" and new != "exposed":
        rewrite(environment, "/keys/own-key.pem", "secret")
    rewrite(environment, old, new)
    with pytest.raises((CommandFailed, OSError)) as raised:
        connection_of(None, profile, environment)
    assert cause in str(raised.value)
    assert "open-sesame" not in str(raised.value)


def test_credentials_of_rocketmqs_tool_are_read(tmp_path: Path) -> None:
    """From conf/tools.yml below ROCKETMQ_HOME; without the file or its keys, requests are not signed."""
    environment = {"ROCKETMQ_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert connection_of("a:1", None, environment).credentials is None
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "tools.yml"
    write_secret(file, "# accessKey: a\n")
    assert connection_of("a:1", None, environment).credentials is None
    write_secret(file, "accessKey: rocketmq2\nsecretKey: 12345678\n")
    assert connection_of("a:1", None, environment).credentials == Credentials("rocketmq2", "12345678")
    write_secret(file, "accessKey: [\n")
    with pytest.raises(CommandFailed, match="not valid YAML"):
        connection_of("a:1", None, environment)


def test_an_unreadable_file_is_one_line(run_mqadmin: RunCommand, home: Path) -> None:
    """With exit code 1."""
    directory = home / ".config" / "skylark"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text('[profiles.p]\naccess_key = "a"\nsecret_key_file = "missing"\n')
    result = run_mqadmin("clusterList", "--profile", "p")
    missing = directory / "missing"
    assert result == (1, "", f"mqadmin: {missing}: {os.strerror(2)}\n")


def test_a_damaged_certificate_is_one_line(run_mqadmin: RunCommand, home: Path) -> None:
    """With exit code 1 and the name of the setting."""
    directory = home / ".config" / "skylark"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text('[profiles.p.tls]\ntrust_cert = "damaged.pem"\n')
    (directory / "damaged.pem").write_text("no certificate")
    result = run_mqadmin("clusterList", "--profile", "p")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "tls" in result.err


def test_requests_are_signed_with_the_credentials_of_a_profile(
    run_mqadmin: RunCommand, scripted: Peer, home: Path
) -> None:
    """The secret is in no request and in no output, also if the broker denies the request."""
    directory = home / ".config" / "skylark"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text('[profiles.p]\naccess_key = "me"\nsecret_key_file = "secret"\n')
    write_secret(directory / "secret", "open-sesame")
    denied = RemotingCommand.response(ResponseCode.NO_PERMISSION, "signature of me is wrong")
    scripted.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda *_: denied)
    result = run_mqadmin("brokerStatus", "-b", scripted.address, "--profile", "p")
    assert (result.code, result.out, result.err.count("\n")) == (4, "", 1)
    sent = [request.ext_fields() for request in scripted.requests]
    assert [(fields["AccessKey"], "Signature" in fields) for fields in sent] == [("me", True)] * len(sent)
    assert "open-sesame" not in f"{sent} {result}"


def test_a_command_uses_the_tls_of_its_profile(mqadmin: RunCommand, broker: InProcessBroker, home: Path) -> None:
    """A certificate without a known authority is accepted only without the check."""
    directory = home / ".config" / "skylark"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text("[profiles.any.tls]\ncheck_server = false\n[profiles.strict]\ntls = true\n")
    assert mqadmin("brokerStatus", "-b", broker.address, "--profile", "any").code == 0
    refused = mqadmin("brokerStatus", "-b", broker.address, "--profile", "strict")
    assert (refused.code, refused.out, refused.err.count("\n")) == (3, "", 1)
