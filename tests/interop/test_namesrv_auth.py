"""RocketMQ's brokers at a name server of ours with `namesrvAuth`: with credentials they register, without they do not.

RocketMQ 5.3 signs the requests to its name servers with `innerClientAuthenticationCredentials`. RocketMQ 4.9 has no
such setting.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.protocol.codes import RequestCode
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.interop.brokers import (
    Commands,
    apache_commands,
    broker_ports,
    daemon,
    log_file,
    routes,
    running_broker,
    wait_until,
)

pytestmark = pytest.mark.interop

CREDENTIALS: Final = json.dumps({"accessKey": "broker-a", "secretKey": "sesame-sesame"}, separators=(",", ":"))
LOCAL_USERS: Final = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
REFUSED: Final = "request refused, namesrvAuth code=REGISTER_BROKER (103) peer=127.0.0.1:"


def name_server(home: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of a name server of ours that needs accounts, and has one."""
    accounts = home / "accounts.json"
    accounts.write_text(f"[{CREDENTIALS}]")
    accounts.chmod(0o600)
    settings = {
        "listenPort": port,
        "bindAddress": LOOPBACK,
        "kvConfigPath": home / "kv.json",
        "namesrvAuth": "true",
        "accountsFile": accounts,
    }
    options = [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]
    return [sys.executable, "-c", "from skylarkmq.broker.app.cli import mqnamesrv; mqnamesrv()", *options], {}


def rocketmq_5(home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]) -> Commands:
    """Return the commands of a name server of ours and a broker of RocketMQ 5.3.3."""
    _, broker = apache_commands("5.3.3", home, namesrv_port, broker_port, settings)
    return [name_server(home, namesrv_port), broker]


def test_a_broker_of_rocketmq_registers_with_credentials(tmp_path: Path) -> None:
    """Its signed requests are accepted, from the registration to the end; other changes need an account."""
    settings = {"innerClientAuthenticationCredentials": CREDENTIALS, "authenticationMetadataProvider": LOCAL_USERS}
    with running_broker(rocketmq_5, tmp_path, settings) as broker:
        broker.create_topic("Orders", 2)
        port = int(broker.namesrv.rpartition(":")[2])
        with RawClient(LOOPBACK, port) as client:
            cluster = json.loads(client.call(RequestCode.GET_BROKER_CLUSTER_INFO).body.replace(b"{0:", b'{"0":'))
            assert broker.broker_address in json.dumps(cluster)
            assert client.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "Orders"}).code == 16
    assert REFUSED not in log_file(tmp_path).read_text(errors="replace")


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_broker_of_rocketmq_without_credentials_is_refused(tmp_path: Path, version: str) -> None:
    """The log of the name server has the reason, and there is no route."""
    namesrv_port, broker_port = broker_ports()
    _, command = apache_commands(version, tmp_path, namesrv_port, broker_port, {})
    with ExitStack() as stack:
        for each in (name_server(tmp_path, namesrv_port), command):
            stack.enter_context(daemon(*each, tmp_path))
        log = log_file(tmp_path)
        wait_until(lambda: REFUSED in log.read_text(errors="replace"), "a refused registration")
        assert "account=None reason=it is not signed" in log.read_text(errors="replace")
        assert not routes(namesrv_port, "TBW102", None)
