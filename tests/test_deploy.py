"""The files under deploy/ match the code: the sample configuration loads, the image starts an installed command, and
rules and dashboard use metrics that the broker exports.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from skylarkmq.broker.app.cli import NEEDS_OPERATOR
from skylarkmq.broker.config.keys import BROKER_KEYS
from skylarkmq.broker.config.parsing import from_environment, from_file
from skylarkmq.broker.config.sections import Machine, load_broker
from skylarkmq.broker.ops.catalogue import CATALOGUE, LIBRARY, Kind

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = (ROOT / "deploy" / "broker.conf").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "deploy" / "docker-compose.yml").read_text()
REPLICATION = (ROOT / "deploy" / "docker-compose.replication.yml").read_text()
RULES = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "skylark-broker.json").read_text())
MACHINE = Machine("broker-a", "10.0.0.5", Path("/data"), str)


def test_the_sample_configuration_contains_the_defaults() -> None:
    """The sample loads without a warning, every key is a setting, and its values are the defaults."""
    loaded = load_broker(from_file(SAMPLE, "broker.conf"), MACHINE)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config == load_broker([], MACHINE).config


def test_commented_keys_of_the_sample_load() -> None:
    """The commented keys of the sample are settings, with valid values."""
    with_optional_keys = re.sub(r"^#(?=[\w.]+=)", "", SAMPLE, flags=re.MULTILINE)
    loaded = load_broker(from_file(with_optional_keys, "broker.conf"), MACHINE)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config.listen.advertised_host == "10.0.0.5"
    assert loaded.config.broker.namesrv_addresses == ("ns1:9876", "ns2:9876")


def test_the_image_runs_a_command_that_the_package_installs() -> None:
    """CMD and the compose file start console scripts of pyproject.toml, as an unprivileged user."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (command,) = re.findall(r'^CMD \["(\w+)"\]', DOCKERFILE, flags=re.MULTILINE)
    started = {command, *re.findall(r"^ +command: (mq\w+)", COMPOSE + REPLICATION, flags=re.MULTILINE)}
    assert started == {"mqbroker", "mqnamesrv"}
    assert started <= set(scripts)
    assert re.search(r"^USER (?!root|0)", DOCKERFILE, flags=re.MULTILINE)


def test_systemd_restarts_no_broker_that_needs_an_operator() -> None:
    """Each new start would end with the same code. After other failures systemd starts the broker again."""
    unit = (ROOT / "deploy" / "systemd" / "skylark-broker.service").read_text()
    assert re.findall(r"^Restart\w*=.*", unit, flags=re.MULTILINE) == [
        "Restart=on-failure", f"RestartPreventExitStatus={NEEDS_OPERATOR}", "RestartSec=2"
    ]  # fmt: skip


def test_variables_of_image_and_compose_file_are_settings() -> None:
    """Each SKYLARK_ variable is the name of a setting."""
    known = {key.upper() for key in BROKER_KEYS.known()}
    variables = set(re.findall(r"SKYLARK_(\w+)", DOCKERFILE + COMPOSE + REPLICATION))
    assert variables
    assert {variable.removesuffix("_FILE").replace("_", "") for variable in variables} <= known


def test_the_nodes_of_the_compose_file_are_a_group() -> None:
    """Their settings load: n1 leads by its name in haPeers, n2 and n3 follow, and all have the secret of the group."""
    services = yaml.safe_load(REPLICATION)["services"]
    roles = {}
    for name in ("n1", "n2", "n3"):
        variables = {key: str(value) for key, value in services[name]["environment"].items()}
        given = from_environment(variables, BROKER_KEYS, lambda path: f"the secret in {path}\n")
        loaded = load_broker(given, MACHINE)
        assert loaded.warnings == []
        replication = loaded.config.replication
        roles[name] = (replication.broker_role.name, replication.leads, loaded.config.broker.broker_id)
        assert replication.ha_node_id == name
        assert replication.ha_cluster_secret == "the secret in /run/secrets/cluster-secret"
        assert {peer.host for peer in replication.ha_peers} == {"n1", "n2", "n3"}
        assert replication.min_in_sync_replicas == 2
    assert roles == {"n1": ("SYNC_MASTER", True, 0), "n2": ("SLAVE", False, 1), "n3": ("SLAVE", False, 2)}


def test_files_mounted_by_the_compose_file_exist() -> None:
    """The files exist: Docker creates a directory for a missing one, without an error message."""
    mounted = re.findall(r"(?<![\w.])\./([\w./-]+):/", COMPOSE)
    assert len(mounted) > 3
    assert [name for name in mounted if not (ROOT / "deploy" / name).exists()] == []


def alert_expressions() -> list[str]:
    return re.findall(r"^ +expr: (.+)$", RULES, flags=re.MULTILINE)


def dashboard_expressions() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return panels + [variable["definition"] for variable in DASHBOARD["templating"]["list"][1:]]


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Return each metric of an expression, with the labels of its selector."""
    found = re.findall(r"\b((?:rocketmq|skylark|process|python)_\w+)(?:\{([^}]*)\})?", expression)
    return [(name, set(re.findall(r"(\w+)(?==~?\")", matchers))) for name, matchers in found]


def is_known(name: str, labels: set[str]) -> bool:
    """Return whether the broker exports a metric with these labels."""
    if any(name.startswith(prefix.rstrip("*")) for prefix in LIBRARY):
        return labels <= {"job"}
    row = CATALOGUE.get(name)
    if row is None:
        row = CATALOGUE.get(re.sub(r"_(bucket|count|sum)$", "", name))
        if row is None or row.kind is not Kind.HISTOGRAM:
            return False
    return labels <= {*row.all_labels, "job"}


@pytest.mark.parametrize("expression", alert_expressions() + dashboard_expressions())
def test_rules_and_dashboard_use_exported_metrics(expression: str) -> None:
    """Every metric and every label in an expression is in the catalogue."""
    used_metrics = selectors(expression)
    assert used_metrics or expression.startswith("up{")
    assert [(name, labels) for name, labels in used_metrics if not is_known(name, labels)] == []


def test_labels_in_texts_of_alerts_are_labels_of_their_series() -> None:
    """Every label in the text of an alert is a label of its expression; otherwise the text would be empty there."""
    target_labels = {"instance", "job"}
    for rule in RULES.split("- alert: ")[1:]:
        name, expression = rule.splitlines()[0], alert_expression_of(rule)
        grouped = set(re.findall(r"by \(([^)]*)\)", expression))
        labels = {label.strip() for group in grouped for label in group.split(",")}
        if not grouped:
            labels = {label for metric, _ in selectors(expression) for label in labels_of(metric)} | target_labels
        used = set(re.findall(r"\$labels\.(\w+)", rule))
        assert used <= labels, name


def alert_expression_of(rule: str) -> str:
    (expression,) = re.findall(r"^ +expr: (.+)$", rule, flags=re.MULTILINE)
    return str(expression)


def labels_of(metric: str) -> tuple[str, ...]:
    row = CATALOGUE.get(metric)
    return row.all_labels if row is not None else ()


def test_the_dashboard_has_the_most_important_metrics() -> None:
    """Panels have titles and units and do not overlap; the most important metrics have a panel."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert all(panel["title"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    positions = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(positions)) == len(positions)
    used_metrics = {name for expression in dashboard_expressions() for name, _ in selectors(expression)}
    assert {
        "rocketmq_messages_in_total", "rocketmq_rpc_latency_milliseconds_bucket", "rocketmq_consumer_lag_messages",
        "rocketmq_storage_flush_behind_bytes", "skylark_store_disk_used_ratio", "skylark_pool_refused_total",
        "skylark_memory_anonymous_bytes", "skylark_loop_lag_seconds_bucket",
    } <= used_metrics  # fmt: skip


def test_the_dashboard_has_a_row_for_each_feature() -> None:
    """Each row has panels below it, and every panel has a query, whose legend names labels of its series."""
    title, found = "", dict[str, int]()
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            title = panel["title"]
            found[title] = 0
            continue
        found[title] += 1
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
            metrics = selectors(target["expr"])
            labels = {label.strip() for group in grouped for label in group.split(",")} or {
                *(label for metric, _ in metrics for label in labels_of(metric)), "instance", "job",
            }  # fmt: skip
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, panel["title"]
    assert {"Delays", "Timers", "Transactions", "Dead letters", "TLS", "Access control", "Replication"} <= found.keys()
    assert all(found.values())


def test_every_alert_is_in_a_group_and_has_a_severity() -> None:
    """Names are unique; each alert has a summary."""
    groups = yaml.safe_load(RULES)["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    assert {alert["labels"]["severity"] for alert in alerts} == {"critical", "warning"}
    assert all(alert["annotations"]["summary"] for alert in alerts)


def test_the_dockerfile_follows_the_rules_of_hadolint() -> None:
    """hadolint has no remark."""
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("stage", ["packages", "build"])
def test_the_image_copies_packages_and_the_project_as_layers(stage: str) -> None:
    """The locked packages are installed before the sources are copied, and are a layer of their own in the image."""
    last = DOCKERFILE.split("\nFROM ")[-1]
    assert f"COPY --from={stage} " in last
    packages = DOCKERFILE.split(" AS build")[0]
    assert "--require-hashes -r /locks/requirements.lock" in packages
    assert "COPY . " not in packages


def test_containers_of_the_compose_file_reach_the_broker() -> None:
    """Unless BROKER_IP1 is given, the broker advertises its own address; published ports are those of the host only."""
    compose = yaml.safe_load(COMPOSE)
    broker = compose["services"]["broker"]
    assert broker["environment"]["SKYLARK_BROKER_IP1"] == "${BROKER_IP1:-}"
    given = from_environment({"SKYLARK_BROKER_IP1": "", "SKYLARK_BIND_ADDRESS": "0.0.0.0"}, BROKER_KEYS, str)
    assert load_broker(given, MACHINE).config.listen.advertised_host == MACHINE.address
    for service in compose["services"].values():
        assert all(port.startswith(("127.0.0.1:", "${PUBLISHED:-127.0.0.1}:")) for port in service["ports"])
    assert compose["networks"]["default"]["name"] == "skylark"


def test_the_nodes_of_the_replicated_group_start(tmp_path: Path) -> None:
    """The settings of all three load without a warning. One leads, ids and stores differ, and etcd is optional."""
    compose = yaml.safe_load(REPLICATION)
    secret = tmp_path / "cluster-secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    nodes = {name: compose["services"][name] for name in ("n1", "n2", "n3")}
    loaded = {}
    for name, service in nodes.items():
        variables = service["environment"] | {"SKYLARK_HA_CLUSTER_SECRET_FILE": str(secret)}
        given = from_environment(variables, BROKER_KEYS, lambda path: Path(path).read_text())
        loaded[name] = load_broker(given, MACHINE)
        assert loaded[name].warnings == loaded[name].notes == []
        assert service["volumes"] == [f"{name}:/data"]
    configs = {name: its.config for name, its in loaded.items()}
    assert {name: its.replication.leads for name, its in configs.items()} == {"n1": True, "n2": False, "n3": False}
    assert [its.broker.broker_id for its in configs.values()] == [0, 1, 2]
    assert {its.broker.broker_name for its in configs.values()} == {"broker-a"}
    assert {peer.name for peer in configs["n1"].replication.ha_peers} == nodes.keys()
    assert all(peer.host == peer.name for peer in configs["n1"].replication.ha_peers)
    assert compose["services"]["etcd"]["profiles"] == ["etcd"]
