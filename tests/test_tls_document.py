"""docs/tls.md works: its command makes a certificate that its settings and its client can use."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from skylarkmq import Message, Producer, TlsSettings
from skylarkmq.broker.config.keys import BROKER_KEYS
from tests.harness.daemon import MQBROKER, running

DOCUMENT = (Path(__file__).resolve().parent.parent / "docs" / "tls.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A directory with the certificate and the settings of the document."""
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl is not installed")
    subprocess.run(block("sh"), shell=True, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "broker.conf").write_text(block("properties"))
    return tmp_path


@pytest.mark.daemon
async def test_a_client_accepts_the_certificate_of_the_document(made: Path) -> None:
    """Command, settings and the Python line work together, including the check of the host name."""
    assert 'tls=TlsSettings(trust_cert_path="server.pem")' in DOCUMENT
    with running([*MQBROKER, "-c", "broker.conf"], made) as daemon:
        tls = TlsSettings(trust_cert_path=made / "server.pem")
        async with Producer("shop", namesrv=daemon.namesrv, tls=tls) as producer:
            assert (await producer.send(Message("Orders", b"one coffee"))).msg_id
        assert daemon.stop() == 0, daemon.output


def test_every_key_of_the_document_is_a_setting() -> None:
    """Each `tls.` key in the document is a setting of the broker."""
    keys = {setting.key for setting in BROKER_KEYS.settings}
    named = set(re.findall(r"`(tls\.[\w.]+\w)(?:=\w+)?`", DOCUMENT))
    assert named
    assert named <= keys
