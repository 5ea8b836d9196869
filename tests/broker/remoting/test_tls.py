"""Certificates: which are required, which clients are rejected, and how changed files are loaded."""

import asyncio
import os
import shutil
import ssl
from pathlib import Path

import pytest

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.parsing import Secret
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.tls import ReloadingContext, ServerTls, client_context, self_signed
from tests.harness.certificates import Certificates, Pair, unverified_context
from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def own(made: Certificates) -> Pair:
    return made.issue("server")


async def served_by(server: EchoServer, tls: ssl.SSLContext) -> str | None:
    """Return the serial number of the certificate with which the server served such a client, or None if it did not."""
    try:
        async with await RawPeer.connect(server.port, tls=tls) as peer:
            await peer.call(ECHO)
            return peer.certificate["serialNumber"] if peer.certificate else ""
    except (OSError, asyncio.IncompleteReadError):
        return None


# ------------------------------------------------------------------------------------------------ clients' certificates


@pytest.mark.parametrize(
    ("need", "checked", "without", "trusted", "stranger"),
    [
        (ClientAuth.NONE, True, True, True, True),
        (ClientAuth.OPTIONAL, True, True, True, False),
        (ClientAuth.REQUIRE, True, False, True, False),
        (ClientAuth.NONE, False, True, True, True),
        (ClientAuth.OPTIONAL, False, True, True, True),
    ],
)
async def test_client_certificates_are_checked_according_to_the_setting(
    made: Certificates, own: Pair, tmp_path: Path, need: ClientAuth, checked: bool, without: bool, trusted: bool,
    stranger: bool,
) -> None:  # fmt: skip
    """none: not requested; optional: an invalid certificate is rejected; require: a missing one is rejected too."""
    (tmp_path / "others").mkdir()
    others = Certificates(tmp_path / "others", "others")
    trust = made.authority.cert
    config = TlsConfig(
        cert_path=own.cert, key_path=own.key, need_client_auth=need, auth_client=checked, trust_cert_path=trust
    )
    async with EchoServer(tls=ServerTls(config)) as server:
        served = [
            await served_by(server, made.client_context(shown)) is not None
            for shown in (None, made.issue("client"), others.issue("stranger"))
        ]
    assert served == [without, trusted, stranger]


def test_trusted_authorities_turn_client_verification_on(made: Certificates, own: Pair) -> None:
    """tls.server.authClient is not needed if tls.server.trustCertPath is set."""
    required = TlsConfig(cert_path=own.cert, key_path=own.key, need_client_auth=ClientAuth.REQUIRE)
    with pytest.raises(StartError, match=r"tls\.server\.authClient=true"):
        ServerTls(required)
    trusting = TlsConfig(
        cert_path=own.cert, key_path=own.key, need_client_auth=ClientAuth.REQUIRE, trust_cert_path=made.authority.cert
    )
    context = ServerTls(trusting).context
    assert context is not None
    assert context.current.verify_mode is ssl.CERT_REQUIRED


# ------------------------------------------------------------------------------------------------------ our certificate


async def test_without_a_certificate_a_test_certificate_is_used() -> None:
    """A client that does not verify it is served, a client that verifies rejects it; a process makes only one."""
    self_signed.cache_clear()
    async with EchoServer(tls=ServerTls(TlsConfig())) as server:
        assert await served_by(server, unverified_context()) is not None
        assert await served_by(server, ssl.create_default_context()) is None
        first = self_signed()
        ServerTls(TlsConfig())
        assert self_signed() is first


async def test_an_encrypted_key_is_loaded_with_its_password(made: Certificates) -> None:
    """A wrong or missing password stops the start instead of prompting on the terminal."""
    locked = made.issue("locked", password="geheim")
    config = TlsConfig(cert_path=locked.cert, key_path=locked.key, key_password=Secret("geheim"))
    async with EchoServer(tls=ServerTls(config)) as server:
        assert await served_by(server, made.client_context()) is not None
    for password in ("falsch", None):
        with pytest.raises(StartError, match=r"locked\.key"):
            ServerTls(TlsConfig(cert_path=locked.cert, key_path=locked.key, key_password=password))


@pytest.mark.parametrize("lacking", ["cert", "key"])
def test_a_certificate_without_its_key_stops_the_start(own: Pair, lacking: str) -> None:
    """So does a key without its certificate."""
    with pytest.raises(StartError, match=f"expected with tls.server.{lacking}Path"):
        ServerTls(TlsConfig(**{f"{field}_path": getattr(own, field) for field in ("cert", "key") if field != lacking}))


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "another's"])
@pytest.mark.parametrize("which", ["cert", "key"])
def test_an_invalid_file_stops_the_start_and_is_named(made: Certificates, own: Pair, which: str, damage: str) -> None:
    """The error names a file that cannot be read, is not PEM, or does not match the other one."""
    path: Path = getattr(own, which)
    spoil(path, damage, getattr(made.issue("other"), which))
    with pytest.raises(StartError, match=rf"tls\.server\.certPath.*{path.name}"):
        ServerTls(TlsConfig(cert_path=own.cert, key_path=own.key))


def test_enforcing_needs_a_certificate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No client could be served without one, so the broker does not start."""
    monkeypatch.setattr("skylarkmq.broker.remoting.tls.TEST_CERTIFICATE", (str(tmp_path / "no-such-command"),))
    self_signed.cache_clear()
    with pytest.raises(StartError, match=r"tls\.server\.mode=enforcing.*no-such-command"):
        ServerTls(TlsConfig(mode=TlsMode.ENFORCING))
    with pytest.raises(StartError, match=r"tls\.test\.mode\.enable=false"):
        ServerTls(TlsConfig(test_mode=False))
    assert ServerTls(TlsConfig()).context is None


def test_disabled_reads_no_certificate(tmp_path: Path) -> None:
    """Settings of a disabled feature cannot stop a start."""
    tls = ServerTls(TlsConfig(mode=TlsMode.DISABLED, cert_path=tmp_path / "none", key_path=tmp_path / "none"))
    tls.reload_certificates()
    assert tls.statistics().mode == "disabled"


# ----------------------------------------------------------------------------------------------------- new certificates


async def test_a_new_certificate_is_used_for_new_connections(
    made: Certificates, own: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a restart; open connections keep the old one."""
    caplog.set_level("INFO", "skylarkmq.broker.remoting.tls")
    tls = ServerTls(TlsConfig(cert_path=own.cert, key_path=own.key))
    async with EchoServer(tls=tls) as server:
        async with await RawPeer.connect(server.port, tls=made.client_context()) as standing:
            before = await served_by(server, made.client_context())
            replace(own, made.issue("next"))
            assert await served_by(server, made.client_context()) == before
            tls.reload_certificates()
            after = await served_by(server, made.client_context())
            assert after not in (None, before)
            assert (await standing.call(ECHO)).code == 0
        assert "certificate reloaded" in caplog.text
        tls.reload_certificates()
        assert tls.statistics().reloads == 1


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "another's"])
@pytest.mark.parametrize("which", ["cert", "key"])
async def test_an_invalid_new_certificate_keeps_the_old_one(
    made: Certificates, own: Pair, which: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing, truncated or mismatched file is logged once; a repaired one is loaded."""
    tls = ServerTls(TlsConfig(cert_path=own.cert, key_path=own.key))
    later = made.issue("next")
    async with EchoServer(tls=tls) as server:
        before = await served_by(server, made.client_context())
        spoil(getattr(own, which), damage, getattr(later, which))
        tls.reload_certificates()
        tls.reload_certificates()
        assert await served_by(server, made.client_context()) == before
        assert caplog.text.count("certificate not reloaded") == tls.statistics().reload_failures == 1
        assert own.cert.name in caplog.text
        replace(own, later)
        tls.reload_certificates()
        assert await served_by(server, made.client_context()) not in (None, before)


async def test_a_server_checks_for_new_certificates_periodically(
    made: Certificates, own: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the scan for idle connections."""
    monkeypatch.setattr("skylarkmq.broker.remoting.boss.IDLE_SCAN_S", 0.001)
    tls = ServerTls(TlsConfig(cert_path=own.cert, key_path=own.key))
    async with EchoServer(tls=tls):
        replace(own, made.issue("next"))
        await until(lambda: tls.statistics().reloads)


# -------------------------------------------------------------------------------------------------- our own connections


def test_outbound_connections_are_plain_by_default() -> None:
    """tls.enable or useTLS turn TLS on; without either it is on only in enforcing mode."""
    assert client_context(OutboundTlsConfig(), TlsMode.PERMISSIVE) is None
    assert client_context(OutboundTlsConfig(), TlsMode.ENFORCING) is not None
    assert client_context(OutboundTlsConfig(enable=False), TlsMode.ENFORCING) is None
    assert client_context(OutboundTlsConfig(use_tls=True), TlsMode.PERMISSIVE) is not None
    assert client_context(OutboundTlsConfig(use_tls=True, enable=False), TlsMode.PERMISSIVE) is None


def test_trusted_authorities_turn_server_verification_on(made: Certificates) -> None:
    """tls.client.authServer follows tls.client.trustCertPath; host names are not compared."""
    trusting = client_context(OutboundTlsConfig(enable=True, trust_cert_path=made.authority.cert), TlsMode.PERMISSIVE)
    careless = client_context(OutboundTlsConfig(enable=True), TlsMode.PERMISSIVE)
    assert trusting is not None
    assert careless is not None
    assert (trusting.current.verify_mode, trusting.current.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert (careless.current.verify_mode, careless.current.check_hostname) == (ssl.CERT_NONE, False)


def spoil(path: Path, damage: str, others: Path) -> None:
    """Damage a file."""
    match damage:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "torn":
            path.write_bytes(path.read_bytes()[:-60])
        case _:
            shutil.copy(others, path)


def replace(own: Pair, new: Pair) -> None:
    """Replace a certificate and its key, as certificate tools do."""
    for target, source in zip(own, new, strict=True):
        beside = target.with_suffix(".new")
        shutil.copy(source, beside)
        os.replace(beside, target)


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("odd"), RecursionError(), MemoryError()])
def test_no_error_of_a_reload_ends_the_reloads(own: Pair, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The last valid certificate stays, one line has the reason, and a later change is read."""
    contexts: list[ssl.SSLContext | Exception] = [ssl.create_default_context(), error, ssl.create_default_context()]

    def make() -> ssl.SSLContext:
        made = contexts.pop(0)
        if isinstance(made, Exception):
            raise made
        return made

    reloading = ReloadingContext([own.cert], make)
    first = reloading.current
    for expected in ("failure", "reload"):
        own.cert.write_bytes(own.cert.read_bytes() + b"\n")
        latest = reloading.latest()
        assert (latest is first) is (expected == "failure")
    assert (reloading.reloads, reloading.failures) == (1, 1)
    assert caplog.text.count("certificate not reloaded") == 1
