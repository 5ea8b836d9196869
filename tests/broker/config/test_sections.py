"""The configuration of the daemons: defaults, addresses, and the match between the key tables and the structs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.access.config import AccessConfig, Credentials, inner_client_credentials
from skylarkmq.broker.access.security_config import MappedSubject, SecurityConfig
from skylarkmq.broker.app.sections.registration import registration_of
from skylarkmq.broker.base.address_ranges import LOOPBACK, PRIVATE
from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import Catalogue, bare, from_file
from skylarkmq.broker.config.sections import (
    BrokerConfig,
    DaemonConfig,
    FastFailureConfig,
    ListenConfig,
    Loaded,
    Machine,
    NamesrvDaemonConfig,
    OpsConfig,
    PoolsConfig,
    WaitsConfig,
    load_broker,
    load_namesrv,
)
from skylarkmq.broker.ha.config import BrokerRole, ReplicationConfig
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.store.files.config import FlushDiskType, StoreConfig
from skylarkmq.protocol.message_id import decode_host

MACHINES_OWN = "bindAddress is set, 192.168.1.5 is this machine's"
MACHINE = Machine("box", "192.168.1.5", Path("/home/mq"), {"broker.example": "198.51.100.7"}.__getitem__)

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "broker": BrokerConfig,
    "listen": ListenConfig,
    "replication": ReplicationConfig,
    "remoting": RemotingConfig,
    "tls": TlsConfig,
    "outbound_tls": OutboundTlsConfig,
    "pools": PoolsConfig,
    "waits": WaitsConfig,
    "fast_failure": FastFailureConfig,
    "store": StoreConfig,
    "ops": OpsConfig,
    "limits": LimitsConfig,
    "access": AccessConfig,
    "namesrv": NamesrvConfig,
    "security": SecurityConfig,
}
# Fields that follow from others and have no key of their own.
DERIVED = {("listen", "advertised_ip"), ("listen", "why"), ("store", "store_host"), ("namesrv", "bind_address")}
DERIVED |= {("security", "secret_files"), ("ops", "port_may_move"), ("store", "is_follower")}
DERIVED |= {("namesrv", "config_black_list")}  # a broker's name server uses the broker's list
# Keys that are checked and set no field.
CHECKED = {("store", "commit_log_path")}


def broker(text: str = "") -> Loaded[DaemonConfig]:
    return load_broker(from_file(text, "b.conf"), MACHINE)


def namesrv(text: str = "") -> Loaded[NamesrvDaemonConfig]:
    return load_namesrv(from_file(text, "n.conf"), MACHINE)


def effective(loaded: Loaded[Any]) -> dict[str, tuple[str, str]]:
    return {row.key: (row.value, row.origin) for row in loaded.effective}


def test_every_field_has_a_key_and_every_key_has_a_field() -> None:
    """A field that no key sets, or a key that sets no field, is a mistake in a table."""
    fields = {(name, field) for name, struct in SECTIONS.items() for field in struct.__struct_fields__}
    keys = [(setting.section, setting.field) for setting in BROKER_KEYS.settings if setting.section in SECTIONS]
    assert len(keys) == len(set(keys))
    assert set(keys) - CHECKED == fields - DERIVED


@pytest.mark.parametrize("catalogue", [BROKER_KEYS, NAMESRV_KEYS])
def test_a_key_has_one_class_and_a_unique_environment_spelling(catalogue: Catalogue) -> None:
    """Settings, only-values and inactive keys do not overlap, even without case, dots and underscores."""
    keys = [setting.key for setting in catalogue.settings] + [*catalogue.only, *catalogue.inactive]
    assert len(keys) == len(set(map(bare, keys)))


def test_without_settings_a_broker_and_its_name_server_use_the_loopback_address() -> None:
    """A first start needs no file: broker and name server on 127.0.0.1, store in ./store."""
    config, _, warnings, notes, *_ = broker()
    assert (config.listen.bind_host, config.listen.port, config.listen.advertised_host) == (
        "127.0.0.1",
        10911,
        "127.0.0.1",
    )
    assert config.namesrv is not None
    assert (config.namesrv.bind_address, config.namesrv.listen_port) == ("127.0.0.1", 9876)
    assert config.namesrv.kv_config_path == Path("store/config/kvConfig.json")
    assert config.store.store_path_root_dir == Path("store")
    assert (config.broker.broker_name, config.broker.broker_cluster_name) == ("box", "DefaultCluster")
    assert (config.ops.host, config.ops.port) == ("127.0.0.1", 5557)
    assert warnings == notes == []


@pytest.mark.parametrize(
    ("text", "bind", "advertised", "ip", "why"),
    [
        ("", "127.0.0.1", "127.0.0.1", "127.0.0.1", "neither bindAddress nor brokerIP1 is set"),
        ("brokerIP1=203.0.113.9", "0.0.0.0", "203.0.113.9", "203.0.113.9", "brokerIP1 is set"),
        ("bindAddress=10.1.1.1", "10.1.1.1", "10.1.1.1", "10.1.1.1", "bindAddress is set"),
        ("bindAddress=0.0.0.0", "0.0.0.0", "192.168.1.5", "192.168.1.5", MACHINES_OWN),
        ("bindAddress=::", "::", "192.168.1.5", "192.168.1.5", MACHINES_OWN),
        ("bindAddress=10.1.1.1\nbrokerIP1=::1", "10.1.1.1", "::1", "::1", "bindAddress and brokerIP1 are set"),
        ("brokerIP1=broker.example", "0.0.0.0", "broker.example", "198.51.100.7", "brokerIP1 is set"),
        ("bindAddress=\nbrokerIP1=", "127.0.0.1", "127.0.0.1", "127.0.0.1", "neither bindAddress nor brokerIP1 is set"),
    ],
)
def test_bind_and_advertised_addresses(text: str, bind: str, advertised: str, ip: str, why: str) -> None:
    """bindAddress, else all addresses if brokerIP1 is set, else the loopback; the advertised address follows."""
    config = broker(text + "\nlistenPort=11000").config
    assert config.listen == ListenConfig(
        bind_host=bind, advertised_host=advertised, advertised_ip=ip, port=11000, why=why
    )
    assert decode_host(config.store.store_host) == (ip, 11000)
    assert config.ops.host == bind


def test_a_pod_advertises_its_name() -> None:
    """The name stays at a restart, its address does not; records contain the address."""
    pod = "box.skylark.default.svc.cluster.local"
    machine = MACHINE._replace(pod_host=pod, resolve={pod: "10.244.0.7"}.__getitem__)
    listen = load_broker(from_file("bindAddress=0.0.0.0", "b.conf"), machine).config.listen
    assert (listen.advertised_host, listen.advertised_ip) == (pod, "10.244.0.7")
    assert listen.why == f"bindAddress is set, {pod} is this pod's"
    elsewhere = load_broker(from_file("bindAddress=0.0.0.0\nbrokerIP1=203.0.113.9", "b.conf"), machine).config.listen
    assert elsewhere.advertised_host == "203.0.113.9"


@pytest.mark.parametrize("bind", ["0.0.0.0", "::"])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "0.0.0.0", "::"])
@pytest.mark.parametrize("is_pod", [False, True])
def test_a_loopback_address_or_wildcard_is_not_advertised_to_other_machines(
    bind: str, address: str, is_pod: bool
) -> None:
    """A machine without another address must set brokerIP1, which may even be a loopback address."""
    machine = MACHINE._replace(pod_host=address) if is_pod else MACHINE._replace(address=address)
    with pytest.raises(StartError, match=f"bindAddress={bind}: expected with brokerIP1, the address that clients"):
        load_broker(from_file(f"bindAddress={bind}", "b.conf"), machine)
    config = load_broker(from_file(f"bindAddress={bind}\nbrokerIP1=127.0.0.1", "b.conf"), machine).config
    assert config.listen.advertised_host == "127.0.0.1"


def test_namesrv_addr_turns_the_embedded_name_server_off() -> None:
    """The broker registers with the given name servers instead."""
    config = broker("namesrvAddr=ns1:9876; ns2:9876").config
    assert config.broker.namesrv_addresses == ("ns1:9876", "ns2:9876")
    assert config.namesrv is None


def test_the_health_pages_can_have_another_address() -> None:
    """metricsPromExporterHost and -Port change it; port 0 turns them off."""
    config = broker("metricsPromExporterHost=10.0.0.8\nmetricsPromExporterPort=0").config
    assert config.ops == OpsConfig(host="10.0.0.8", port=0)


def test_a_port_of_the_health_pages_that_is_set_stays() -> None:
    """Only the default may give way to the next free port."""
    assert broker().config.ops.port_may_move
    assert not broker("metricsPromExporterPort=5557").config.ops.port_may_move


@pytest.mark.parametrize("size", [68, 1_056, 104_857_600])
def test_files_of_the_timer_log_may_have_every_size_that_holds_a_unit(size: int) -> None:
    """A unit has 52 bytes, and a file ends with a blank of 16."""
    assert broker(f"mappedFileSizeTimerLog={size}").config.store.mapped_file_size_timer_log == size
    with pytest.raises(StartError, match=r"mappedFileSizeTimerLog=67: expected a whole number from 68 to"):
        broker("mappedFileSizeTimerLog=67")


def test_keys_set_their_fields() -> None:
    """One key of each part, as in an existing broker.conf."""
    config = broker(
        "brokerName=broker-a\nbrokerPermission=4\ndefaultTopicQueueNums=4\nautoCreateTopicEnable=false\n"
        "flushDiskType=SYNC_FLUSH\nmappedFileSizeConsumeQueue=6000001\nmessageDelayLevel=1s 2d\n"
        "sendThreadPoolQueueCapacity=5\ncom.rocketmq.remoting.frameMaxLength=4194304\n"
        "serverChannelMaxIdleTimeSeconds=30\norderMessageEnable=true\nembeddedNamesrvPort=9877"
    ).config
    assert (config.broker.broker_name, config.broker.broker_permission) == ("broker-a", 4)
    assert (config.broker.default_topic_queue_nums, config.broker.auto_create_topic_enable) == (4, False)
    assert config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.store.mapped_file_size_consume_queue == 6_000_020
    assert config.store.message_delay_level == "1s 2d"
    assert config.pools.send == 5
    assert (config.remoting.max_frame_bytes, config.remoting.max_idle_s) == (4_194_304, 30)
    assert config.namesrv is not None
    assert (config.namesrv.order_message_enable, config.namesrv.listen_port) == (True, 9877)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("listenPort=0", "a whole number from 1 to 65535"),
        ("brokerPermission=7", "2 or 4 or 6 or 0"),
        ("brokerId=-1", "a whole number from 0"),
        ("brokerRole=MASTER", "ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("enableControllerMode=true", "false, RocketMQ's elections of masters"),
        ("haTransferBatchSize=4194305", "a whole number from 1 to 4194292"),
        ("haMasterAddress=ha1", "HOST:PORT"),
        ("haMasterAddress=ha1:99999", "HOST:PORT"),
        ("haMasterAddress=ha1:0", "HOST:PORT"),
        ("aclConfigDir=", "a path"),
        ("flushDiskType=ASYNC", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("messageDelayLevel=1x", "delays with a unit"),
        ("messageDelayLevel=5", "delays with a unit"),
        ("namesrvAddr=ns1", "HOST:PORT"),
        ("storePathRootDir=", "a path"),
        ("storePathCommitLog=/elsewhere", "store/commitlog, a log outside storePathRootDir"),
        ("bindAddress=a b", "an IP address or a host name"),
    ],
)
def test_an_invalid_value_stops_the_start(line: str, reason: str) -> None:
    """One line with file, line, key, value and the expected values."""
    with pytest.raises(StartError) as caught:
        broker(line)
    assert str(caught.value).startswith(f"b.conf:1: {line}: expected {reason}")


def test_a_commit_log_path_below_the_root_is_accepted() -> None:
    """Many files set storePathCommitLog in addition to the root; the default location is accepted."""
    loaded = broker("storePathRootDir=/data/store/\nstorePathCommitLog=/data/./store/commitlog/")
    assert loaded.config.store.store_path_root_dir == Path("/data/store")


def test_effective_settings_are_listed_with_their_origin() -> None:
    """-p shows defaults, values derived from other settings, and the source of all others."""
    rows = effective(broker("brokerIP1=203.0.113.9\nlistenPort=1234"))
    assert rows["listenPort"] == ("1234", "b.conf:2")
    assert rows["bindAddress"] == ("0.0.0.0", "default")
    assert rows["metricsPromExporterHost"] == ("0.0.0.0", "default")
    assert rows["flushDiskType"] == ("ASYNC_FLUSH", "default")
    assert "embeddedNamesrvPort" in rows
    assert "embeddedNamesrvPort" not in effective(broker("namesrvAddr=ns1:9876"))


def test_tls_is_permissive_by_default() -> None:
    """RocketMQ's default: both kinds of clients are served, outbound connections are plain."""
    config = broker().config
    assert config.tls == TlsConfig(mode=TlsMode.PERMISSIVE)
    assert not config.outbound_tls.is_on(config.tls.mode)


def test_tls_keys_set_their_fields() -> None:
    """RocketMQ's names, with dots; an empty path is no path."""
    config = broker(
        "tls.server.mode=enforcing\ntls.server.certPath=/c.pem\ntls.server.keyPath=/c.key\ntls.server.trustCertPath=\n"
        "tls.server.need.client.auth=optional\ntls.test.mode.enable=false\ntls.client.authServer=true\nuseTLS=true"
    ).config
    assert (config.tls.mode, config.tls.need_client_auth) == (TlsMode.ENFORCING, ClientAuth.OPTIONAL)
    assert (config.tls.cert_path, config.tls.key_path, config.tls.trust_cert_path) == (
        Path("/c.pem"),
        Path("/c.key"),
        None,
    )
    assert config.tls.test_mode is False
    assert (config.outbound_tls.auth_server, config.outbound_tls.use_tls) == (True, True)


def test_a_password_is_hidden() -> None:
    """-p shows that one is set, and its source."""
    loaded = broker("tls.server.keyPassword=geheim")
    assert loaded.config.tls.key_password == "geheim"
    assert effective(loaded)["tls.server.keyPassword"] == ("(hidden)", "b.conf:1")
    assert "geheim" not in repr(loaded)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls.server.mode=enforcing\ntls.enable=false", "tls.enable=false: expected true"),
        ("tls.server.mode=enforcing\ntls.server.need.client.auth=require", "tls.client.certPath: expected"),
    ],
)
def test_a_broker_must_be_able_to_register_with_its_own_name_server(text: str, reason: str) -> None:
    """Otherwise it does not start; settings of other name servers are not known here."""
    with pytest.raises(StartError, match=reason):
        broker(text)
    assert broker(text + "\nnamesrvAddr=ns1:9876").config.namesrv is None


def test_a_name_server_ignores_outbound_tls_settings() -> None:
    """Both daemons can share one tls.properties."""
    loaded = namesrv("tls.server.mode=disabled\ntls.enable=true\ntls.client.certPath=/c.pem")
    assert loaded.config.tls.mode is TlsMode.DISABLED
    assert loaded.warnings == []
    assert len(loaded.notes) == 2


def test_a_name_server_listens_on_all_addresses_without_health_pages() -> None:
    """mqnamesrv's defaults are RocketMQ's; its health pages need a port."""
    config = namesrv().config
    assert (config.namesrv.bind_address, config.namesrv.listen_port) == ("0.0.0.0", 9876)
    assert config.namesrv.kv_config_path == Path("/home/mq/namesrv/kvConfig.json")
    assert config.ops.port == 0


def test_a_name_server_has_its_own_keys() -> None:
    """listenPort is the name server's port here, and RocketMQ's other keys are noted."""
    loaded = namesrv(
        "listenPort=1\nbindAddress=127.0.0.1\nmetricsPromExporterPort=5558\ndefaultThreadPoolNums=3\nbrokerName=x"
    )
    assert (loaded.config.namesrv.listen_port, loaded.config.namesrv.bind_address) == (1, "127.0.0.1")
    assert loaded.config.ops == OpsConfig(host="127.0.0.1", port=5558)
    assert len(loaded.notes) == 1
    assert loaded.warnings == ["n.conf:5: unknown key brokerName"]


@pytest.mark.parametrize(
    ("text", "has_private"),
    [
        ("", False),
        ("bindAddress=10.0.0.5", True),
        ("bindAddress=0.0.0.0", True),  # the machine's own address is private
        ("brokerIP1=198.51.100.7", True),
        ("brokerIP1=127.0.0.1", True),  # in a container, whose port is published on the host's loopback address
        ("bindAddress=broker.example", False),
        ("bindAddress=198.51.100.7", False),
        ("bindAddress=fd00::1", True),
    ],
)
def test_private_networks_administer_a_broker_with_a_private_address(text: str, has_private: bool) -> None:
    """The address that it is bound to; if that is a wildcard, the machine's own one, whatever it advertises."""
    security = broker(text).config.security
    assert security.admin_allowed_networks == (LOOPBACK + PRIVATE if has_private else LOOPBACK)


def test_private_networks_administer_a_name_server_with_a_private_address() -> None:
    """By default it is bound to all addresses; the machine's own one counts."""
    assert namesrv().config.security.admin_allowed_networks == LOOPBACK + PRIVATE
    assert namesrv("bindAddress=127.0.0.1").config.security.admin_allowed_networks == LOOPBACK


def test_networks_of_administrators_are_set_as_a_list() -> None:
    """The effective setting shows them in the same form; an empty list permits no network; host bits are a mistake."""
    assert effective(broker())["adminAllowedNetworks"] == ("127.0.0.0/8;::1/128", "default")
    assert effective(broker("adminAllowedNetworks=10.1.0.0/16; fd00::/8"))["adminAllowedNetworks"][0] == (
        "10.1.0.0/16;fd00::/8"
    )
    assert broker("adminAllowedNetworks=").config.security.admin_allowed_networks == ()
    for text in ("10.0.0.1/8", "10.0.0", "private"):
        with pytest.raises(StartError, match=r"adminAllowedNetworks=.*: expected a network such as 10\.0\.0\.0/8"):
            broker(f"adminAllowedNetworks={text}")


def test_a_mapping_of_certificates_is_shown_in_its_canonical_form() -> None:
    """Subjects with their attributes in alphabetical order."""
    tls = "tls.server.trustCertPath=/ca.pem\ntls.server.need.client.auth=optional\n"
    loaded = broker(tls + "tlsAuthMapping=o=X,cn=orders=shop;CN=ops=admin")
    assert loaded.config.security.tls_auth_mapping == (
        MappedSubject("CN=orders,O=X", "shop"),
        MappedSubject("CN=ops", "admin"),
    )
    assert effective(loaded)["tlsAuthMapping"][0] == "CN=orders,O=X=shop;CN=ops=admin"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tlsAuthMapping=CN=ops=admin", "tlsAuthMapping: expected with tls.server.need.client.auth"),
        (
            "tlsAuthMapping=CN=ops=admin\ntls.server.need.client.auth=optional",
            "tlsAuthMapping: expected with tls.server.need.client.auth",
        ),
        (
            (
                "tlsAuthMapping=CN=ops=admin\ntls.server.need.client.auth=optional\ntls.server.trustCertPath=/c\n"
                "tls.server.mode=disabled"
            ),
            "tlsAuthMapping: expected with tls.server.need.client.auth",
        ),
        ("namesrvAuth=true\nnamesrvAddr=ns1:9876", "namesrvAuth=true: expected without namesrvAddr"),
    ],
)
def test_a_protection_without_effect_stops_the_start(text: str, reason: str) -> None:
    """The operator would rely on it."""
    with pytest.raises(StartError, match=reason):
        broker(text)


def test_a_name_server_that_needs_accounts_must_have_some() -> None:
    """Otherwise it would refuse every broker."""
    with pytest.raises(StartError, match="namesrvAuth=true: expected with accountsFile"):
        namesrv("namesrvAuth=true")
    assert namesrv("namesrvAuth=true\naccountsFile=/a.json").config.security.namesrv_auth


def test_credentials_have_the_form_of_rocketmq() -> None:
    """JSON with accessKey and secretKey; the file that contains them is a file with secrets."""
    text = 'innerClientAuthenticationCredentials={"accessKey":"rocketmq","secretKey":"12345678"}'
    config = broker(text).config
    assert inner_client_credentials(config.access) == Credentials("rocketmq", "12345678")
    assert config.security.secret_files == (Path("b.conf"),)
    assert broker().config.security.secret_files == ()


def test_the_console_is_off_and_local_by_default() -> None:
    """It listens on the loopback address, also if the broker is bound to all addresses."""
    rows = effective(broker("brokerIP1=203.0.113.9"))
    assert rows["consolePort"] == ("0", "default")
    assert rows["consoleHost"] == ("127.0.0.1", "default")


def test_pages_with_tls_need_tls_of_the_broker() -> None:
    """consoleTls and metricsTls use the certificate of the broker's ports."""
    for key in ("consoleTls", "metricsTls"):
        with pytest.raises(StartError, match=f"{key}=true: expected with tls.server.mode=permissive or enforcing"):
            broker(f"{key}=true\ntls.server.mode=disabled")


@pytest.mark.parametrize(
    ("text", "is_open", "port"),
    [
        ("", False, 10912),
        ("listenPort=20000", False, 20001),
        ("haListenPort=0", False, 10912),
        ("haListenPort=10920", True, 10920),
        ("totalReplicas=2", True, 10912),
        ("brokerRole=ASYNC_MASTER\nlistenPort=65535", False, 65536),
    ],
)
def test_the_port_for_slaves_is_opened_only_if_a_setting_asks_for_it(text: str, is_open: bool, port: int) -> None:
    """The port serves the whole log without authentication, so a broker without slaves does not have it."""
    config = broker(text).config
    assert (config.replication.serves_slaves, config.ha_port) == (is_open, port)


def test_a_synchronous_master_serves_slaves_and_a_slave_does_not() -> None:
    """SYNC_MASTER needs slaves; a slave has the port of its master only after a restart as a master."""
    roles = {role: ReplicationConfig(broker_role=role, ha_listen_port=1).serves_slaves for role in BrokerRole}
    assert roles == {BrokerRole.ASYNC_MASTER: True, BrokerRole.SYNC_MASTER: True, BrokerRole.SLAVE: False}
    assert ReplicationConfig(broker_role=BrokerRole.SYNC_MASTER).serves_slaves


def test_slaves_connect_to_broker_ip_2_from_the_networks_of_administrators() -> None:
    """brokerIP2 is advertised to slaves, brokerIP1 without it; both lists of networks have the same default."""
    config = broker("brokerIP1=203.0.113.9\nbrokerIP2=10.0.0.9").config
    assert config.replication.advertised_host == "10.0.0.9"
    assert registration_of(config).ha_server_addr == "10.0.0.9:10912"
    config = broker("brokerIP1=203.0.113.9\nbrokerIP2=").config
    assert registration_of(config).ha_server_addr == "203.0.113.9:10912"
    assert config.replication.ha_allowed_networks == config.security.admin_allowed_networks
    own = broker("haAllowedNetworks=10.0.0.0/8").config.replication.ha_allowed_networks
    assert list(map(str, own)) == ["10.0.0.0/8"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("brokerId=1", "brokerId=1: expected 0, or with brokerRole=SLAVE"),
        ("brokerRole=SLAVE\nnamesrvAddr=ns:9876", "brokerRole=SLAVE: expected with a brokerId above 0"),
        ("brokerRole=SLAVE\nbrokerId=1", "brokerRole=SLAVE: expected with namesrvAddr"),
        ("listenPort=65535\ntotalReplicas=2", "listenPort=65535: expected with haListenPort"),
    ],
)
def test_id_and_port_have_to_fit_the_role(text: str, reason: str) -> None:
    """A master has the id 0, a slave another one and a name server; the default port for slaves must exist."""
    with pytest.raises(StartError, match=reason):
        broker(text)


def test_the_store_of_a_slave_takes_no_messages() -> None:
    """The role decides it at the start."""
    config = broker("brokerRole=SLAVE\nbrokerId=1\nnamesrvAddr=ns:9876").config
    assert config.store.is_follower
    assert registration_of(config).broker_id == 1
    assert not broker("brokerRole=ASYNC_MASTER").config.store.is_follower


LINK = "haPeers=n1=127.0.0.1:10912,n2=127.0.0.1:20912\nhaNodeId={node}\nbrokerRole={role}\n{more}"


def linked(node: str = "n1", role: str = "ASYNC_MASTER", more: str = "") -> Loaded[DaemonConfig]:
    return broker(LINK.format(node=node, role=role, more=more))


def test_the_first_node_of_peers_leads() -> None:
    """It opens the port for the others, who open none."""
    leader, follower = linked().config, linked("n2", "SLAVE", "brokerId=1\nnamesrvAddr=127.0.0.1:9876").config
    assert (leader.replication.leads, leader.replication.serves_slaves) == (True, True)
    assert (follower.replication.leads, follower.replication.serves_slaves) == (False, False)
    assert follower.store.is_follower
    assert effective(linked())["haPeers"][0] == "n1=127.0.0.1:10912;n2=127.0.0.1:20912"


def test_the_cluster_secret_is_never_shown() -> None:
    """Neither in the settings that are printed, nor in an error."""
    loaded = linked(more="haClusterSecret=a secret of this group")
    assert loaded.config.replication.ha_cluster_secret == "a secret of this group"
    assert effective(loaded)["haClusterSecret"][0] == "(hidden)"
    assert "a secret of" not in repr(loaded)
    with pytest.raises(StartError, match=r"haClusterSecret=\(hidden\): expected a text of at least 16 bytes"):
        linked(more="haClusterSecret=fifteen bytes..")


@pytest.mark.parametrize(
    ("node", "role", "more", "reason"),
    [
        ("n3", "ASYNC_MASTER", "", "haNodeId=n3: expected one of haPeers: n1, n2"),
        ("n1", "SLAVE", "brokerId=1\nnamesrvAddr=127.0.0.1:9876", "brokerRole=SLAVE: expected the role of a master"),
        (
            "n2",
            "ASYNC_MASTER",
            "",
            "brokerRole=ASYNC_MASTER: expected SLAVE, because haPeers begins with the leader, n1",
        ),
        ("n1", "ASYNC_MASTER", "haListenPort=10999", "n1=127.0.0.1:10912: expected port 10999, where this node"),
        ("n1", "ASYNC_MASTER", "minInSyncReplicas=3", "minInSyncReplicas=3: expected at most the 2 nodes"),
        ("n1", "SYNC_MASTER", "", "flushDiskType=ASYNC_FLUSH: expected SYNC_FLUSH"),
        ("n1", "ASYNC_MASTER", "bindAddress=10.0.0.1", "haPeers: expected with haClusterSecret, or with TLS"),
        ("n1", "ASYNC_MASTER", "haStore=etcd://h:2379", "haStore=etcd://h:2379: expected none"),
    ],
)
def test_settings_of_a_link_have_to_fit(node: str, role: str, more: str, reason: str) -> None:
    """Each line names the setting and what is expected."""
    with pytest.raises(StartError, match=reason):
        linked(node, role, more)


def test_a_node_id_needs_peers() -> None:
    """It would have no effect."""
    with pytest.raises(StartError, match="haNodeId=n1: expected with haPeers"):
        broker("haNodeId=n1")


def test_certificates_of_both_sides_stand_for_a_secret() -> None:
    """Only if the node presents one, and verifies those of followers and of the leader."""
    tls = (
        "bindAddress=10.0.0.1\ntls.server.certPath=/c\ntls.server.keyPath=/k\ntls.server.trustCertPath=/t\n"
        "tls.server.need.client.auth=require\ntls.enable=true\ntls.client.certPath=/c\ntls.client.keyPath=/k\n"
        "tls.client.trustCertPath=/t\n"
    )
    assert linked(more=tls).config.replication.leads
    for key in ("need.client.auth", "server.trustCertPath", "client.certPath", "client.trustCertPath"):
        fewer = "\n".join(line for line in tls.splitlines() if key not in line)
        with pytest.raises(StartError, match="expected with haClusterSecret"):
            linked(more=fewer + "\nnamesrvAddr=10.0.0.1:9876")
    with pytest.raises(StartError, match="expected with haClusterSecret"):
        linked(more=tls + "tls.client.authServer=false\nnamesrvAddr=10.0.0.1:9876")
