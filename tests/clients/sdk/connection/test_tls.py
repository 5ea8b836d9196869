"""The SDK over TLS, against a daemon of this repository."""

import random
import ssl
from pathlib import Path

import pytest

from skylarkmq import (
    Client,
    ClientSettings,
    ConnectFailed,
    ConsumeFrom,
    InvalidArgument,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    TlsSettings,
)
from skylarkmq.clients.sdk.connection.tls import tls_context
from tests.clients.peer import until
from tests.harness.certificates import Certificates, Pair
from tests.harness.daemon import running

KIB = 1024
SIZES = (0, 1, 100, 16_384, 100 * KIB, 1024 * KIB, 3 * 1024 * KIB)


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def served_with(pair: Pair, **more: object) -> dict[str, object]:
    """Return the settings of a broker with this certificate; in `more`, double underscores stand for dots."""
    given = {"tls.server.certPath": pair.cert, "tls.server.keyPath": pair.key}
    return given | {key.replace("__", "."): value for key, value in more.items()}


@pytest.mark.daemon
async def test_large_messages_arrive_unchanged(made: Certificates, tmp_path: Path) -> None:
    """Bodies of up to 3 MiB are equal byte by byte, and no message is sent in plain text."""
    rng = random.Random(5)
    bodies = {str(n): rng.randbytes(size) for n, size in enumerate(SIZES * 3)}
    tls = TlsSettings(trust_cert_path=made.authority.cert)
    received: dict[str, bytes] = {}
    settings = served_with(made.issue("server"), tls__server__mode="enforcing")
    with running(directory=tmp_path, settings=settings | {"mappedFileSizeCommitLog": 32 << 20}) as daemon:
        async with Producer("shop", namesrv=daemon.namesrv, tls=tls) as producer:
            for n, body in bodies.items():
                await producer.send(Message("Orders", body, keys=[n]))
        async with PullConsumer("g", namesrv=daemon.namesrv, tls=tls, consume_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe("Orders")
            while len(received) < len(bodies):
                received |= {message.keys[0]: message.body for message in await consumer.poll(timeout_s=10)}
        with pytest.raises(ConnectFailed):
            async with Producer("shop", namesrv=daemon.namesrv, tls=TlsSettings()) as stranger:
                await stranger.send(Message("Orders", b"who signed this?"))
        assert daemon.stop() == 0, daemon.output
    assert received == bodies
    assert "Traceback" not in daemon.output


@pytest.mark.daemon
async def test_a_client_presents_its_certificate(made: Certificates, tmp_path: Path) -> None:
    """A broker that requires certificates serves clients that have one, also those that share a client."""
    pair, own = made.issue("server"), made.issue("own", password="geheim")
    tls = TlsSettings(trust_cert_path=made.authority.cert, cert_path=own.cert, key_path=own.key, key_password="geheim")
    settings = served_with(
        pair, tls__server__need__client__auth="require", tls__server__trustCertPath=made.authority.cert
    )
    with running(directory=tmp_path, settings=settings) as daemon:
        received: list[bytes] = []

        async def handler(message: MessageExt) -> None:
            received.append(message.body)

        shared = Client(daemon.namesrv, ClientSettings(tls=tls))
        async with shared, Producer("shop", client=shared) as producer:
            await producer.send(Message("Orders", b"signed"))
        consumer = PushConsumer("g", namesrv=daemon.namesrv, tls=tls, handler=handler, consume_from=ConsumeFrom.FIRST)
        async with consumer:
            await consumer.subscribe("Orders")
            await until(lambda: received == [b"signed"])
        assert daemon.stop() == 0, daemon.output


@pytest.mark.daemon
async def test_a_client_without_checks_accepts_a_test_certificate(tmp_path: Path) -> None:
    """A broker without TLS settings serves TLS and plain clients on the same ports."""
    with running(directory=tmp_path) as daemon:
        async with Producer("a", namesrv=daemon.namesrv, tls=TlsSettings(check_server=False)) as careless:
            await careless.send(Message("Orders", b"1"))
        async with Producer("b", namesrv=daemon.namesrv) as plain:
            await plain.send(Message("Orders", b"2"))
        assert daemon.stop() == 0, daemon.output


def test_a_client_checks_issuer_and_name_by_default(made: Certificates) -> None:
    """Each check can be disabled; an SSLContext of the application is used unchanged."""
    context = tls_context(TlsSettings())
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    context = tls_context(TlsSettings(trust_cert_path=made.authority.cert, check_host_name=False))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert len(context.get_ca_certs()) == 1
    context = tls_context(TlsSettings(check_server=False))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert tls_context(context) is context
    assert tls_context(None) is None


def test_an_unusable_file_is_an_error_when_the_client_is_made(made: Certificates, tmp_path: Path) -> None:
    """Not at the first connection. No password is prompted for or shown."""
    own = made.issue("own", password="geheim")
    for tls in (
        TlsSettings(trust_cert_path=tmp_path / "none.pem"),
        TlsSettings(cert_path=own.cert, key_path=own.key),
        TlsSettings(cert_path=own.key),
    ):
        with pytest.raises(InvalidArgument, match="tls: "):
            Client("127.0.0.1:1", ClientSettings(tls=tls))
    assert "geheim" not in repr(ClientSettings(tls=TlsSettings(key_password="geheim")))


def test_a_shared_client_and_tls_exclude_each_other() -> None:
    """A client that is shared has its own TLS settings."""
    with pytest.raises(ValueError, match="tls and credentials belong to the client"):
        Producer("shop", client=Client("127.0.0.1:1"), tls=TlsSettings())
