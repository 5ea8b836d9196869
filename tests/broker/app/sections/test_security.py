"""Access control of daemons as wired: the embedded and the stand-alone name server, networks, and metrics accounts."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.app.namesrv import NamesrvParts
from skylarkmq.broker.app.sections.security import AccessControl
from skylarkmq.broker.app.sections.usage import UsageControl
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import (
    DaemonConfig,
    Loaded,
    Machine,
    NamesrvDaemonConfig,
    load_broker,
    load_namesrv,
)
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.signature import Signer
from tests.harness.certificates import Certificates
from tests.harness.daemon import MQNAMESRV, running
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import RawClient
from tests.harness.raw_peer import RawPeer, Received
from tests.harness.scraped import scrape
from tests.harness.waiting import until

SECRET = "sesame-sesame"
ACCOUNT = json.dumps({"accessKey": "broker-a", "secretKey": SECRET})
KV = {"namespace": "N", "key": "k", "value": "v"}
PUT_KV, GET_KV = RequestCode.PUT_KV_CONFIG, RequestCode.GET_KV_CONFIG


def machine(directory: Path, address: str = "127.0.0.1") -> Machine:
    return Machine("broker-a", address, directory, lambda host: host)


def given(settings: Mapping[str, object]) -> list[Given]:
    return [Given(key, str(value), "test") for key, value in settings.items()]


def broker_config(directory: Path, settings: Mapping[str, object], address: str = "127.0.0.1") -> DaemonConfig:
    ports = dict(zip(("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"), free_ports(3), strict=True))
    small = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1_000,
             "maxIndexNum": 4_000, "storePathRootDir": directory / "store"}  # fmt: skip
    return load_broker(given({**ports, **small, **settings}), machine(directory, address)).config


def namesrv_config(directory: Path, settings: Mapping[str, object]) -> NamesrvDaemonConfig:
    base = {"bindAddress": "127.0.0.1", "listenPort": free_ports(1)[0]}
    return load_namesrv(given({**base, **settings}), machine(directory)).config


@asynccontextmanager
async def started(config: DaemonConfig) -> AsyncIterator[Broker]:
    broker = Broker(config, alone=False)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def name_server(config: NamesrvDaemonConfig) -> AsyncIterator[NameServer]:
    """A stand-alone name server, as `mqnamesrv` wires it."""
    server = NamesrvParts(Loaded(config)).server
    await server.start("127.0.0.1", config.namesrv.listen_port)
    try:
        yield server
    finally:
        await server.stop()


def accounts_file(directory: Path, text: str = f"[{ACCOUNT}]") -> Path:
    path = directory / "accounts.json"
    path.write_text(text)
    path.chmod(0o600)
    return path


def signed(code: int, ext: Mapping[str, str], account: str = "broker-a", secret: str = SECRET) -> dict[str, str]:
    """Return the ext fields of a request with this account's signature."""
    command = RemotingCommand.request(code)
    command.ext = dict(ext)
    Signer(account, secret).sign(command)
    return command.ext_fields()


def access_control(config: DaemonConfig) -> AccessControl:
    """Return the access control of a broker that is not started, so nothing is saved."""

    async def saved(_file: str) -> None: ...

    return AccessControl(config, UsageControl(config.quotas, config.audit, lambda _topic, _group: 0), saved)


async def call(port: int, code: int, ext: Mapping[str, str], **options: object) -> Received:
    async with await RawPeer.connect(port, **options) as peer:  # type: ignore[arg-type] # tls
        return await peer.call(code, ext)


async def test_a_broker_registers_with_its_own_name_server_without_configuration(tmp_path: Path) -> None:
    """namesrvAuth needs no account for it: broker and name server share credentials that exist in the process only."""
    config = broker_config(tmp_path, {"namesrvAuth": "true"})
    assert config.namesrv is not None
    port = config.namesrv.listen_port
    async with started(config) as broker:
        assert broker.parts.registration.registrar.registered
        route = {"topic": "TBW102"}
        assert (await call(port, RequestCode.GET_ROUTEINFO_BY_TOPIC, route)).code == 0
        refused = await call(port, PUT_KV, KV)
        assert (refused.code, refused.remark) == (
            16,
            "PUT_KV_CONFIG (100) needs an account (namesrvAuth): it is not signed",
        )
        assert (await call(port, PUT_KV, signed(PUT_KV, KV, "skylark-broker", "x"))).code == 16
    assert broker.parts.registration.name_server is not None
    assert not broker.parts.registration.name_server.routes.statistics().brokers  # unregistering is signed, too


async def test_accounts_of_the_file_change_the_embedded_name_server(tmp_path: Path) -> None:
    """Beside the broker itself."""
    config = broker_config(tmp_path, {"namesrvAuth": "true", "accountsFile": accounts_file(tmp_path)})
    assert config.namesrv is not None
    async with started(config):
        assert (await call(config.namesrv.listen_port, PUT_KV, signed(PUT_KV, KV))).code == 0
        assert (await call(config.namesrv.listen_port, GET_KV, KV)).ext == {"value": "v"}


async def test_a_broker_registers_with_its_credentials(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A stand-alone name server accepts innerClientAuthenticationCredentials of its accounts, and refuses a broker
    without any; both logs name the reason."""
    names = namesrv_config(tmp_path, {"namesrvAuth": "true", "accountsFile": accounts_file(tmp_path)})
    address = f"127.0.0.1:{names.namesrv.listen_port}"
    async with name_server(names) as server:
        config = broker_config(tmp_path, {"namesrvAddr": address, "innerClientAuthenticationCredentials": ACCOUNT})
        async with started(config) as broker:
            assert broker.parts.registration.registrar.registered
            assert server.routes.statistics().brokers == 1
        assert server.routes.statistics().brokers == 0
        async with started(broker_config(tmp_path, {"namesrvAddr": address})) as broker:
            assert not broker.parts.registration.registrar.registered
            reason = "refused with code 16: REGISTER_BROKER (103) needs an account (namesrvAuth): it is not signed"
            assert broker.parts.registration.registrar.statistics().name_servers[0].failure == reason
    assert f"not registered name_server={address} reason={reason}" in caplog.text
    assert "request refused, namesrvAuth code=REGISTER_BROKER (103) peer=127.0.0.1:" in caplog.text
    assert SECRET not in caplog.text


async def test_a_broker_registers_with_its_certificate(tmp_path: Path) -> None:
    """tlsAuthMapping maps it to an account of the name server, which needs no secret then."""
    made = Certificates(tmp_path)
    server, own = made.issue("server"), made.issue("broker-b")
    names = namesrv_config(
        tmp_path,
        {
            "namesrvAuth": "true",
            "accountsFile": accounts_file(tmp_path, '[{"accessKey":"b"}]'),
            "tlsAuthMapping": "CN=broker-b=b",
            "tls.server.certPath": server.cert,
            "tls.server.keyPath": server.key,
            "tls.server.trustCertPath": made.authority.cert,
            "tls.server.need.client.auth": "optional",
        },
    )
    address = f"127.0.0.1:{names.namesrv.listen_port}"
    tls = {"tls.enable": "true", "tls.client.certPath": own.cert, "tls.client.keyPath": own.key}
    async with name_server(names):
        async with started(broker_config(tmp_path, {"namesrvAddr": address, **tls})) as broker:
            assert broker.parts.registration.registrar.registered
        async with started(broker_config(tmp_path, {"namesrvAddr": address, "tls.enable": "true"})) as broker:
            assert not broker.parts.registration.registrar.registered


async def test_changes_from_another_network_need_an_account(tmp_path: Path) -> None:
    """Broker and name server refuse them without one; registrations are not affected."""
    networks = {"adminAllowedNetworks": "192.0.2.0/24", "accountsFile": accounts_file(tmp_path)}
    config = broker_config(tmp_path, networks)
    assert config.namesrv is not None
    async with started(config) as broker:
        assert broker.parts.registration.registrar.registered
        update = await call(config.listen.port, RequestCode.UPDATE_BROKER_CONFIG, {})
        assert update.code == 16
        assert update.remark == (
            "UPDATE_BROKER_CONFIG (25) is not permitted from 127.0.0.1 without an account, "
            "see the setting adminAllowedNetworks"
        )
        assert (await call(config.listen.port, RequestCode.GET_BROKER_CONFIG, {})).code == 0
        assert (await call(config.namesrv.listen_port, PUT_KV, KV)).code == 16
        assert (await call(config.namesrv.listen_port, PUT_KV, signed(PUT_KV, KV))).code == 0


async def test_a_client_certificate_may_change_the_broker_from_another_network(tmp_path: Path) -> None:
    """Without access control the certificate's account is verified, and another certificate's is not."""
    made = Certificates(tmp_path)
    server, own, other = made.issue("server"), made.issue("ops"), made.issue("shop")
    config = broker_config(
        tmp_path,
        {
            "adminAllowedNetworks": "",
            "tlsAuthMapping": "CN=ops=admin",
            "tls.server.certPath": server.cert,
            "tls.server.keyPath": server.key,
            "tls.server.trustCertPath": made.authority.cert,
            "tls.server.need.client.auth": "optional",
        },
    )
    update = RequestCode.UPDATE_BROKER_CONFIG
    async with started(config):
        assert (await call(config.listen.port, update, {}, tls=made.client_context(own))).code == 0
        assert (await call(config.listen.port, update, {}, tls=made.client_context(other))).code == 16
        assert (await call(config.listen.port, update, {})).code == 16


async def page(port: int, authorization: str = "", tls: ssl.SSLContext | None = None) -> str:
    """Return the response of /metrics as text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


async def test_a_name_server_has_quotas_by_client(tmp_path: Path) -> None:
    """Those of the broker's port by address: requests per second, and connections. Registrations are not refused."""
    quotas = {"quotaClientRequestsPerSecond": 1, "quotaMaxWaitMills": 0, "quotaClientConnections": 2}
    config = namesrv_config(tmp_path, quotas)
    port = config.namesrv.listen_port
    parts = NamesrvParts(Loaded(config))
    await parts.server.start("127.0.0.1", port)
    try:
        async with await RawPeer.connect(port) as peer, await RawPeer.connect(port) as second:
            assert (await peer.call(GET_KV, KV)).code == ResponseCode.QUERY_NOT_FOUND
            while (refused := await second.call(GET_KV, KV)).code == ResponseCode.QUERY_NOT_FOUND:
                pass  # on a slow machine a second has passed since the last call
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert str(refused.remark).endswith("quotaClientRequestsPerSecond=1 of client 127.0.0.1")
            assert (await peer.call(RequestCode.QUERY_DATA_VERSION, {})).code != ResponseCode.SYSTEM_BUSY
            async with await RawPeer.connect(port) as third:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await third.call(GET_KV, KV)
        assert parts.access.refusals.by_kind == {("client", "requests"): 1, ("client", "connections"): 1}
    finally:
        await parts.server.stop()


async def test_the_quotas_of_a_name_server_change_by_request(tmp_path: Path) -> None:
    """At once, in both directions."""
    config = namesrv_config(tmp_path, {"quotaMaxWaitMills": 0})
    async with name_server(config), await RawPeer.connect(config.namesrv.listen_port) as peer:
        for quota, is_exceeded in ((20, True), (0, False)):
            change, code = b"quotaClientRequestsPerSecond=%d" % quota, ResponseCode.SYSTEM_BUSY
            while code == ResponseCode.SYSTEM_BUSY:
                code = ResponseCode((await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, {}, change)).code)
            codes = [(await peer.call(GET_KV, KV)).code for _ in range(100)]
            assert (ResponseCode.SYSTEM_BUSY in codes) is is_exceeded


async def test_an_embedded_name_server_has_the_quotas_of_its_broker(tmp_path: Path) -> None:
    """Its port counts on its own; the refusals of both ports are in one metric."""
    settings = {"quotaClientRequestsPerSecond": 5, "quotaMaxWaitMills": 0}
    config = broker_config(tmp_path, settings)
    assert config.namesrv is not None
    route = {"topic": "TBW102"}
    async with started(config) as broker, await RawPeer.connect(config.namesrv.listen_port) as peer:
        codes = [(await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)).code for _ in range(20)]
        assert ResponseCode.SYSTEM_BUSY in codes
        assert (await call(config.listen.port, RequestCode.GET_BROKER_RUNTIME_INFO, {})).code == ResponseCode.SUCCESS
        page = await scrape(config.ops.port)
        refused = page.value("skylark_quota_refused_total", scope="client", kind="requests")
        assert refused == codes.count(ResponseCode.SYSTEM_BUSY)
        await broker.parts.registration.registrar.register_now()
        assert broker.parts.registration.registrar.registered


async def test_a_name_server_serves_metrics(tmp_path: Path) -> None:
    """On the port of its health pages: requests, connections, quotas and files, by its host and port."""
    accounts = accounts_file(tmp_path)
    accounts.chmod(0o644)
    config = namesrv_config(tmp_path, {"accountsFile": accounts, "metricsAuth": "false", "metricsLabel": "zone:a"})
    parts = NamesrvParts(Loaded(config))
    await parts.server.start("127.0.0.1", config.namesrv.listen_port)
    health = parts.health()
    port = await health.start()
    try:
        await call(config.namesrv.listen_port, GET_KV, KV)
        page = await scrape(port)
        labels = {"node_type": "name_server", "zone": "a"}
        assert page.value("skylark_exposed_secret_files", **labels) == 1
        assert page.value("skylark_open_without_account", listener="name_server", **labels) == 0
        assert page.value("skylark_connections_accepted_total", **labels) == 1
        assert page.value("skylark_check", check="listening", **labels) == 1
        assert page.value("skylark_quota_keys", scope="client", **labels) == 0
        node = page.samples("skylark_connections")[0][0]["node_id"]
        assert node.endswith(f":{config.namesrv.listen_port}")
    finally:
        await health.stop()
        await parts.server.stop()


async def test_the_metrics_of_a_name_server_need_an_account_if_set(tmp_path: Path) -> None:
    """Those of accountsFile; without the file the setting stops the start."""
    config = namesrv_config(tmp_path, {"accountsFile": accounts_file(tmp_path), "metricsAuth": "true"})
    health = NamesrvParts(Loaded(config)).health()
    port = await health.start()
    try:
        assert (await page(port)).startswith("HTTP/1.1 401 ")
    finally:
        await health.stop()
    with pytest.raises(StartError, match="metricsAuth=true: expected with accountsFile"):
        NamesrvParts(Loaded(namesrv_config(tmp_path, {"metricsAuth": "true"})))


async def test_the_metrics_show_open_listeners_and_exposed_files(tmp_path: Path) -> None:
    """The later doctor reads them; a file counts until its mode is right."""
    accounts = accounts_file(tmp_path)
    accounts.chmod(0o644)
    config = broker_config(tmp_path, {"brokerIP1": "127.0.0.1", "accountsFile": accounts, "metricsAuth": "false"})
    async with started(config):
        before = await scrape(config.ops.port)
        for listener in ("broker", "name_server"):
            assert before.value("skylark_open_without_account", listener=listener) == 1
        assert before.value("skylark_exposed_secret_files") == 1
        accounts.chmod(0o600)
        assert (await scrape(config.ops.port)).value("skylark_exposed_secret_files") == 0


async def test_the_metrics_need_an_account_if_set(tmp_path: Path) -> None:
    """With the accounts of the file."""
    config = broker_config(tmp_path, {"metricsAuth": "true", "accountsFile": accounts_file(tmp_path)})
    async with started(config):
        assert (await page(config.ops.port)).startswith("HTTP/1.1 401 ")
        authorization = "Authorization: Basic YnJva2VyLWE6c2VzYW1lLXNlc2FtZQ==\r\n"
        assert (await page(config.ops.port, authorization)).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("host", "has_accounts", "setting", "expected"),
    [
        ("127.0.0.1", True, None, False),
        ("127.0.0.1", True, "true", True),
        ("10.0.0.5", True, None, True),
        ("10.0.0.5", True, "false", False),
        ("10.0.0.5", False, None, False),
    ],
)
def test_the_default_of_metrics_auth(
    tmp_path: Path, host: str, has_accounts: bool, setting: str | None, expected: bool
) -> None:
    """On if there are accounts and other machines can reach the page; off on the loopback address."""
    settings: dict[str, object] = {"metricsPromExporterHost": host}
    settings |= {"accountsFile": accounts_file(tmp_path)} if has_accounts else {}
    settings |= {} if setting is None else {"metricsAuth": setting}
    assert (access_control(broker_config(tmp_path, settings)).page_accounts is not None) is expected


def test_metrics_auth_without_accounts_stops_the_start(tmp_path: Path) -> None:
    """It would refuse every scrape."""
    with pytest.raises(StartError, match="metricsAuth=true: expected with accountsFile"):
        access_control(broker_config(tmp_path, {"metricsAuth": "true"}))


async def test_the_gate_of_an_open_broker_checks_no_data(tmp_path: Path) -> None:
    """Only the networks of administrators apply: runs of sends and pulls cost nothing."""
    async with started(broker_config(tmp_path, {})) as broker:
        assert broker.parts.server.dispatcher.guard is not None
        assert not broker.parts.server.dispatcher.guard.checks_data
        await until(lambda: broker.parts.registration.registrar.registered)


@pytest.mark.daemon
def test_mqnamesrv_needs_accounts(tmp_path: Path) -> None:
    """As a command: unsigned changes are refused, signed ones permitted, and the settings show no secret."""
    (port,) = free_ports(1)
    settings = {
        "listenPort": port, "bindAddress": LOOPBACK, "kvConfigPath": tmp_path / "kv.json", "namesrvAuth": "true",
        "accountsFile": accounts_file(tmp_path),
    }  # fmt: skip
    with running(MQNAMESRV, tmp_path, settings) as names, RawClient(LOOPBACK, port) as client:
        assert client.call(PUT_KV, KV).code == 16
        assert client.call(PUT_KV, signed(PUT_KV, KV)).code == 0
        shown = client.call(RequestCode.GET_NAMESRV_CONFIG).body.decode()
        assert f"accountsFile={tmp_path / 'accounts.json'}" in shown
        assert names.stop() == 0
    assert "request refused, namesrvAuth code=PUT_KV_CONFIG (100)" in names.output
    assert SECRET not in shown + names.output


# --- accounts of RocketMQ 4.9 -----------------------------------------------------------------------------------------


def plain_acl(directory: Path, mode: int = 0o600) -> dict[str, object]:
    """Return the settings of a broker with access control of RocketMQ 4.9 and one administrator."""
    path = directory / "plain_acl.yml"
    path.write_text(f"accounts:\n- {{accessKey: broker-a, secretKey: {SECRET}, admin: true}}\n")
    path.chmod(mode)
    return {"aclEnable": "true", "aclConfigDir": directory}


async def test_accounts_of_4_9_are_those_of_the_metrics_page(tmp_path: Path) -> None:
    """Their secret keys are the passwords."""
    config = broker_config(tmp_path, {"metricsAuth": "true", **plain_acl(tmp_path)})
    async with started(config):
        assert (await page(config.ops.port)).startswith("HTTP/1.1 401 ")
        authorization = "Authorization: Basic YnJva2VyLWE6c2VzYW1lLXNlc2FtZQ==\r\n"
        assert (await page(config.ops.port, authorization)).startswith("HTTP/1.1 200 ")


def test_a_file_of_accounts_that_others_can_read_stops_a_strict_start(tmp_path: Path) -> None:
    """Otherwise it is counted."""
    settings = plain_acl(tmp_path, 0o644)
    assert access_control(broker_config(tmp_path, settings)).secret_files.exposed() == [tmp_path / "plain_acl.yml"]
    with pytest.raises(StartError, match=r"plain_acl\.yml: other users can read"):
        access_control(broker_config(tmp_path, settings | {"strictSecretFiles": "true"}))


def test_files_of_accounts_that_appear_later_and_those_only_migrated_count(tmp_path: Path) -> None:
    """While they exist: the files of 4.9's accounts, also if users of 5.3 are made from them."""
    secret = '{"username":"root","password":"root-secret"}'
    users = {"authenticationEnabled": "true", "migrateAuthFromV1Enabled": "true", "initAuthenticationUser": secret}
    plain = plain_acl(tmp_path, 0o644)
    migrating = users | {"aclConfigDir": tmp_path}
    control = access_control(broker_config(tmp_path, migrating))
    assert control.secret_files.exposed() == [tmp_path / "plain_acl.yml"]
    with pytest.raises(StartError, match=r"plain_acl\.yml: other users can read"):
        access_control(broker_config(tmp_path, migrating | {"strictSecretFiles": "true"}))
    assert access_control(broker_config(tmp_path, users)).secret_files.exposed() == []
    (tmp_path / "plain_acl.yml").chmod(0o600)
    later = tmp_path / "acl" / "team.yml"
    later.parent.mkdir()
    later.write_text("accounts: []")
    later.chmod(0o640)
    for settings in (migrating, plain):
        assert access_control(broker_config(tmp_path, settings)).secret_files.exposed() == [later]


def test_both_kinds_of_access_control_stop_the_start(tmp_path: Path) -> None:
    """Requests would have to satisfy two kinds of accounts."""
    settings = {**plain_acl(tmp_path), "authenticationEnabled": "true"}
    with pytest.raises(StartError, match="aclEnable"):
        access_control(broker_config(tmp_path, settings))


async def test_an_administrator_of_4_9_changes_the_embedded_name_server(tmp_path: Path) -> None:
    """With `namesrvAuth` the accounts of the broker count there, with their permissions."""
    config = broker_config(tmp_path, {"namesrvAuth": "true", **plain_acl(tmp_path)})
    async with started(config) as broker:
        await until(lambda: broker.parts.registration.registrar.registered)
        assert config.namesrv is not None
        async with await RawPeer.connect(config.namesrv.listen_port) as peer:
            assert (await peer.call(PUT_KV, KV)).code == 16
            command = RemotingCommand(code=PUT_KV, ext=dict(KV))
            Signer("broker-a", SECRET).sign(command)
            assert (await peer.call(PUT_KV, command.ext)).code == 0


async def test_access_control_closes_the_broker_to_other_machines(tmp_path: Path) -> None:
    """The metric is 0 for the broker, and 1 for its name server without namesrvAuth."""
    config = broker_config(tmp_path, {**plain_acl(tmp_path), "brokerIP1": "127.0.0.1", "metricsAuth": "false"})
    async with started(config):
        scraped = await scrape(config.ops.port)
        assert scraped.value("skylark_open_without_account", listener="broker") == 0
        assert scraped.value("skylark_open_without_account", listener="name_server") == 1


# --- users of RocketMQ 5.3 --------------------------------------------------------------------------------------------


def users(**more: object) -> dict[str, object]:
    """Return the settings of a broker with access control of RocketMQ 5.3 and one super user."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
        "innerClientAuthenticationCredentials": ACCOUNT,
        **more,
    }


async def test_users_of_5_3_change_the_embedded_name_server_by_their_rights(tmp_path: Path) -> None:
    """A super user may, a user without rights may not, and the broker registers as its own super user."""
    config = broker_config(tmp_path, users(namesrvAuth="true"))
    assert config.namesrv is not None
    names, create = config.namesrv.listen_port, RequestCode.AUTH_CREATE_USER
    async with started(config) as broker:
        assert broker.parts.registration.registrar.registered
        body = json.dumps({"username": "shop", "password": SECRET, "userType": "Normal"}).encode()
        command = RemotingCommand(code=create, ext={"username": "shop"}, body=body)
        Signer("root", SECRET).sign(command)
        async with await RawPeer.connect(config.listen.port) as peer:
            assert (await peer.call(create, command.ext_fields(), body)).code == 0
        assert (await call(names, PUT_KV, signed(PUT_KV, KV, "root"))).code == 0
        for account, secret in (("shop", SECRET), ("root", "wrong-wrong"), ("unknown", SECRET)):
            assert (await call(names, PUT_KV, signed(PUT_KV, KV, account, secret))).code == 16
        assert (await call(names, PUT_KV, KV)).code == 16


async def test_users_of_5_3_are_those_of_the_metrics_page_and_of_certificates(tmp_path: Path) -> None:
    """Over TLS a user's certificate or password opens the page, and permits what the user may do."""
    made = Certificates(tmp_path)
    server, own, other = made.issue("server"), made.issue("ops"), made.issue("other")
    tls = {
        "tls.server.certPath": server.cert,
        "tls.server.keyPath": server.key,
        "tls.server.trustCertPath": made.authority.cert,
        "tls.server.need.client.auth": "optional",
        "tlsAuthMapping": "CN=ops=root;CN=other=unknown",
    }
    config = broker_config(tmp_path, users(metricsAuth="true", metricsTls="true", adminAllowedNetworks="", **tls))
    port = config.ops.port
    async with started(config):
        for pair, status in ((own, 200), (other, 401)):
            text = await page(port, tls=made.client_context(pair))
            assert text.startswith(f"HTTP/1.1 {status} ")
        authorization = f"Authorization: Basic {base64.b64encode(f'root:{SECRET}'.encode()).decode()}\r\n"
        assert (await page(port, authorization, made.client_context())).startswith("HTTP/1.1 200 ")
        update = RequestCode.UPDATE_BROKER_CONFIG
        assert (await call(config.listen.port, update, {}, tls=made.client_context(own))).code == 0
        assert (await call(config.listen.port, update, {}, tls=made.client_context(other))).code == 16
        assert (await call(config.listen.port, update, {})).code == 16
