"""Links over TLS: both sides verify each other, and catch-up passes through the encryption."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.ha.link import feed
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.tls import ServerTls, client_context
from tests.broker.ha.link.group import TestGroup, TestNode
from tests.broker.ha.link.test_links import content, leads, problem, shown
from tests.harness.certificates import Certificates
from tests.harness.waiting import until


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    (tmp_path / "certificates").mkdir()
    return Certificates(tmp_path / "certificates")


def secured(node: TestNode, made: Certificates, *, presents: bool = True, encrypts: bool = True) -> None:
    """Give a node a certificate of its own, and the authority of the others."""
    own, trust = made.issue(node.name), made.authority.cert
    server = TlsConfig(
        mode=TlsMode.PERMISSIVE,
        cert_path=own.cert,
        key_path=own.key,
        need_client_auth=ClientAuth.OPTIONAL,
        trust_cert_path=trust,
    )
    client = OutboundTlsConfig(
        enable=encrypts,
        cert_path=own.cert if presents else None,
        key_path=own.key if presents else None,
        trust_cert_path=trust,
    )
    node.server_tls = ServerTls(server)
    node.client_tls = client_context(client, TlsMode.PERMISSIVE)


@pytest.mark.parametrize("secret", [None, b"the secret of this group"])
async def test_nodes_link_with_certificates(tmp_path: Path, made: Certificates, secret: bytes | None) -> None:
    """With or without a secret beside; a follower far behind catches up."""
    async with TestGroup(tmp_path, minimum=1, secret=secret) as group:
        leader, follower = group["n1"], group["n2"]
        for node in (leader, follower):
            secured(node, made)
        group.start("n1")
        await leads(leader)
        for _ in range(3):
            leader.send(os.urandom(5 << 20).replace(b"\xffE", b"xx"))
        assert leader.log is not None
        assert leader.log.end > feed.FAR_BYTES
        follower.start()
        end = leader.send(b"last")
        await until(lambda: shown(follower) == end)
        assert content(follower) == content(leader)


@pytest.mark.parametrize(("presents", "encrypts"), [(False, True), (False, False)])
async def test_without_a_secret_a_certificate_is_needed(
    tmp_path: Path, made: Certificates, presents: bool, encrypts: bool
) -> None:
    """The line names the settings."""
    async with TestGroup(tmp_path, minimum=1) as group:
        secured(group["n1"], made)
        secured(group["n2"], made, presents=presents, encrypts=encrypts)
        group.start("n1", "n2")
        await until(lambda: "set tls.enable and tls.client.certPath" in problem(group["n2"], "n1"))
        assert content(group["n2"]) == b""
