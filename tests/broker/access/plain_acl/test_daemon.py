"""A running broker with `aclEnable`: signed requests, changed files, and the requests of mqadmin."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.signature import SigningKey
from tests.broker.app.test_cli import on_free_ports, refusal, run
from tests.harness.daemon import MQBROKER, Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.harness.scraped import Scraped, scrape

pytestmark = pytest.mark.daemon

SECRET: Final = "the-secret-key"
ADMIN: Final = "an-admin"
ORDERS: Final = "orders-pub"
ACCOUNTS: Final = {
    "accounts": [
        {"accessKey": ADMIN, "secretKey": SECRET, "admin": True},
        {"accessKey": ORDERS, "secretKey": SECRET, "topicPerms": ["orders=PUB"]},
    ]
}
SEND_FIELDS: Final = {
    "producerGroup": "PG",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 1,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "unitMode": "false",
    "batch": "false",
}


class Broker:
    """A daemon with its file of accounts, and a client."""

    def __init__(self, daemon: Daemon, directory: Path, client: RawClient) -> None:
        self.daemon = daemon
        self.file = directory / "conf" / "plain_acl.yml"
        self._client = client

    def call(
        self, code: int, account: str | None = None, body: bytes = b"", secret: str = SECRET, **ext: object
    ) -> RawResponse:
        """Return the response to a request, signed unless `account` is None."""
        fields = {name: str(value) for name, value in ext.items()}
        if account is not None:
            fields |= {"AccessKey": account}
            content = "".join(fields[name] for name in sorted(fields)).encode()
            fields |= {"Signature": SigningKey(secret).sign(content, body)}
        return self._client.call(code, fields, body)

    def send(self, account: str | None, topic: str = "orders", secret: str = SECRET) -> RawResponse:
        return self.call(RequestCode.SEND_MESSAGE, account, b"body", secret, topic=topic, **SEND_FIELDS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(yaml.safe_dump(ACCOUNTS))
    (tmp_path / "conf" / "broker.conf").write_text("aclEnable=true\n")
    with (
        running((*MQBROKER, "-c", "conf/broker.conf"), tmp_path) as daemon,
        RawClient(LOOPBACK, daemon.broker_port) as client,
    ):
        yield Broker(daemon, tmp_path, client)
        assert SECRET not in daemon.output


def remark(text: str) -> str:
    return f"org.apache.rocketmq.acl.common.AclException: {text}, skylarkmq.broker.access.plain_acl.control"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def metrics(daemon: Daemon) -> Scraped:
    return asyncio.run(scrape(daemon.health_port))


def refused(response: RawResponse) -> tuple[int, str | None]:
    return response.code, response.remark


def test_accounts_have_their_permissions(broker: Broker) -> None:
    """A refused send stores nothing; a topic is created by an administrator."""
    topic: dict[str, Any] = {"defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    topic["topicFilterType"] = "SINGLE_TAG"
    assert broker.send(ORDERS).code == 0
    assert refused(broker.send(ORDERS, "others")) == (1, remark("No default permission for topic:others"))
    assert refused(broker.send(ORDERS, secret="wrong")) == (1, remark(f"Check signature failed for accessKey={ORDERS}"))
    assert refused(broker.send("unknown")) == (1, remark("No acl config for unknown"))
    assert refused(broker.send(None)) == (1, remark("No accessKey is configured"))
    assert refused(broker.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ORDERS, topic="T", **topic)) == (
        1,
        remark(f"Need admin permission for request code=17, but accessKey={ORDERS} is not"),
    )
    assert broker.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ADMIN, topic="T", **topic).code == 0
    stored = broker.call(RequestCode.GET_MAX_OFFSET, ORDERS, topic="orders", queueId=0)
    assert stored.ext["offset"] == "1"


def test_a_changed_file_takes_effect_and_a_broken_one_does_not(broker: Broker) -> None:
    """Without a restart; the metric counts files with an error."""
    assert broker.send(ORDERS).code == 0
    broker.file.write_text("accounts: [")
    wait_for(lambda: metrics(broker.daemon).value("skylark_acl_broken_files") == 1)
    assert broker.send(ORDERS).code == 0
    broker.file.write_text(yaml.safe_dump({"accounts": ACCOUNTS["accounts"][:1]}))
    wait_for(lambda: broker.send(ORDERS).code != 0)
    assert refused(broker.send(ORDERS)) == (1, remark(f"No acl config for {ORDERS}"))
    page = metrics(broker.daemon)
    assert page.value("skylark_acl_broken_files") == 0
    assert page.value("skylark_acl_accounts") == 1
    assert page.value("skylark_acl_refused_total", step="account") >= 1


def test_accounts_are_managed_by_requests(broker: Broker) -> None:
    """Created, changed and deleted by an administrator, with effect before the response."""
    update, delete = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
    new: dict[str, Any] = {"accessKey": "new-account", "secretKey": SECRET, "admin": "false"}
    assert broker.call(update, ORDERS, **new).remark == remark(
        f"Need admin permission for request code=50, but accessKey={ORDERS} is not"
    )
    assert broker.call(update, ADMIN, **new, topicPerms="orders=PUB,others=SUB").code == 0
    assert broker.send("new-account").code == 0
    assert broker.call(update, ADMIN, **new, topicPerms="orders=SUB").code == 0
    assert broker.send("new-account").remark == remark("No default permission for topic:orders")
    assert broker.call(delete, ADMIN, accessKey="new-account").code == 0
    assert broker.send("new-account").remark == remark("No acl config for new-account")
    assert refused(broker.call(delete, ADMIN, accessKey="new-account")) == (
        210,
        "The accesskey[new-account] corresponding to accessConfig has been deleted failed.",
    )
    assert yaml.safe_load(broker.file.read_text())["accounts"] == ACCOUNTS["accounts"]
    assert broker.file.stat().st_mode & 0o777 == 0o600


def test_white_addresses_are_set_by_a_request(broker: Broker) -> None:
    """For a file of accounts; other files and invalid addresses are refused."""
    code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    assert refused(broker.call(code, ADMIN, globalWhiteAddrs="1.1.1.1", aclFileFullPath="/etc/passwd")) == (
        211,
        "The globalWhiteAddresses[1.1.1.1] has been updated failed.",
    )
    assert refused(broker.call(code, ADMIN, globalWhiteAddrs="1.1")) == (
        211,
        "Netaddress examine Exception netaddress is 1.1",
    )
    assert broker.send(None).code == 1
    assert broker.call(code, ADMIN, globalWhiteAddrs=f"1.1.1.1,{LOOPBACK}").code == 0
    assert broker.send(None).code == 0


def test_versions_count_the_changes_of_each_file(broker: Broker) -> None:
    """As JSON, by the absolute path of the file."""
    before = broker.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, ORDERS).ext
    assert json.loads(before["version"])["counter"] == 0
    broker.call(RequestCode.DELETE_ACL_CONFIG, ADMIN, accessKey=ORDERS)
    after = broker.call(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, ADMIN).ext
    version = json.loads(after["version"])
    assert version["counter"] == 1
    assert json.loads(after["allAclFileVersion"]) == {str(broker.file): version}
    assert (after["clusterName"], after["brokerAddr"]) == (
        "DefaultCluster",
        f"{LOOPBACK}:{broker.daemon.broker_port}",
    )


def test_a_file_with_an_error_prevents_the_start(tmp_path: Path) -> None:
    """With one line that names the file; no broker runs without its rules."""
    (tmp_path / "plain_acl.yml").write_text("accounts: *the-secret-key")
    line = refusal(tmp_path, *on_free_ports(), "--set", "aclEnable=true", "--set", f"aclConfigDir={tmp_path}")
    assert line == f"mqbroker: {tmp_path / 'plain_acl.yml'}: not valid YAML: line 1, column 11"


def test_p_shows_the_directory(tmp_path: Path) -> None:
    """That of the configuration file, else one below the store."""
    (tmp_path / "b.conf").write_text("")
    for arguments, expected in ((("-c", "b.conf"), [".", "-c"]), ((), ["store/conf", "default"])):
        done = run(tmp_path, *arguments, "-p")
        rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
        assert rows["aclConfigDir"] == expected
        assert (rows["aclEnable"], rows["aclStrict"]) == (["false", "default"], ["true", "default"])
