"""Accounts of client certificates: the setting, and subjects of real certificates over real TLS."""

import subprocess
from pathlib import Path

import pytest

from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.certificates import CertificateAccounts, CertificateControl
from skylarkmq.broker.access.requests.table import requirement_of
from skylarkmq.broker.access.security_config import canonical_subject, parse_mapping
from skylarkmq.broker.remoting.config import ClientAuth, TlsConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.certificates import Certificates, Pair
from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.raw_peer import RawPeer


class Subject:
    """A connection with this subject."""

    def __init__(self, subject: str | None) -> None:
        self.certificate_subject = subject


def account_of(mapping: str, subject: str | None) -> str | None:
    return CertificateAccounts(parse_mapping(mapping)).account_of(Subject(subject))


@pytest.mark.parametrize(
    ("mapping", "subject", "account"),
    [
        ("CN=orders=shop", "CN=orders", "shop"),
        (" cn = orders , o=Example = shop ; CN=ops=admin ", "CN=orders,O=Example", "shop"),
        ("O=Example,CN=orders=shop;CN=ops=admin", "CN=ops", "admin"),
        ("CN=orders=shop", "CN=orders,O=Example", None),
        ("CN=orders,O=Example=shop", "CN=orders", None),
        ("CN=orders=shop", "CN=ORDERS", None),
        (r"CN=a\,b,O=c\;d=shop", r"CN=a\,b,O=c\;d", "shop"),
        ("CN=a=b=shop", "CN=a=b", "shop"),
        ("CN=orders=shop", None, None),
        ("CN=orders=shop", "", None),
        ("", "CN=orders", None),
    ],
)
def test_a_subject_must_match_completely(mapping: str, subject: str | None, account: str | None) -> None:
    """In any order of its attributes; case counts in values and not in types."""
    assert account_of(mapping, subject and canonical_subject(subject)) == account


@pytest.mark.parametrize("text", ["orders", "=shop", "CN=orders", "CN==shop", "CN=a=", "CN=a=x;CN=a=y", "a,CN=b=x"])
def test_an_invalid_mapping_is_rejected(text: str) -> None:
    """An entry without type, value or account, and a subject with two accounts."""
    with pytest.raises(ValueError, match=r"."):
        parse_mapping(text)


def test_without_access_control_a_certificate_proves_an_administrator() -> None:
    """The account counts as verified, and callers without one stay anonymous."""
    control = CertificateControl(CertificateAccounts(parse_mapping("CN=ops=admin")))
    assert not control.checks_data
    request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG)

    def caller(subject: str | None) -> Caller:
        return control.check(Subject(subject), request, requirement_of(request.code))  # type: ignore[arg-type]

    assert caller("CN=ops") == Caller("admin", Proof.CERTIFICATE, is_admin=True)
    assert caller("CN=other") == caller(None) == ANONYMOUS


async def subjects_seen(tls: TlsConfig, made: Certificates, own: Pair | None) -> list[str | None]:
    """Return the subjects of the connections of a server with one client, which presents `own`."""
    context = made.client_context(own)
    async with EchoServer(tls=ServerTls(tls)) as server, await RawPeer.connect(server.port, tls=context) as peer:
        await peer.call(ECHO)
        return [connection.certificate_subject for connection in server.selector.registry.connections]


def certificate(made: Certificates, directory: Path, subject: str) -> Pair:
    """Return a certificate of the authority with this subject, in the form of `openssl -subj`."""
    pair = Pair(directory / "own.pem", directory / "own.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-CA", made.authority.cert, "-CAkey", made.authority.key, "-subj", subject, "-days", "2",
         "-addext", "basicConstraints=critical,CA:false", "-keyout", pair.key, "-out", pair.cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return pair


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/CN=orders", "CN=orders"),
        ("/C=DE/O=Example/OU=Shop/CN=orders/emailAddress=a@b.c", "C=DE,CN=orders,EMAILADDRESS=a@b.c,O=Example,OU=Shop"),
        ("/DC=org/DC=example/UID=7/CN=a,b;c", r"CN=a\,b\;c,DC=example,DC=org,UID=7"),
        (r"/CN=x\\,O=Example", r"CN=x\\\,O=Example"),
    ],
)
async def test_a_connection_has_the_subject_of_its_verified_certificate(
    tmp_path: Path, given: str, expected: str
) -> None:
    """Attributes in alphabetical order with short names; special characters of values are escaped."""
    made = Certificates(tmp_path)
    server = made.issue("server")
    tls = TlsConfig(
        cert_path=server.cert,
        key_path=server.key,
        trust_cert_path=made.authority.cert,
        need_client_auth=ClientAuth.OPTIONAL,
    )
    assert await subjects_seen(tls, made, certificate(made, tmp_path, given)) == [expected]
    assert await subjects_seen(tls, made, None) == [None]


async def test_an_unverified_certificate_has_no_subject(tmp_path: Path) -> None:
    """A server that does not ask for certificates takes none into account."""
    made = Certificates(tmp_path)
    server, own = made.issue("server"), made.issue("orders")
    tls = TlsConfig(cert_path=server.cert, key_path=server.key)
    assert await subjects_seen(tls, made, own) == [None]


async def test_a_plain_connection_has_no_subject() -> None:
    """It has no certificate."""
    async with EchoServer() as server, await RawPeer.connect(server.port) as peer:
        await peer.call(ECHO)
        (connection,) = server.selector.registry.connections
        assert isinstance(connection, Connection)
        assert connection.certificate_subject is None
