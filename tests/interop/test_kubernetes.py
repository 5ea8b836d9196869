"""The manifests of deploy/kubernetes and the chart of deploy/helm, rendered by their tools, are valid and equal."""

import copy
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from skylarkmq.broker.app.host.addresses import pod_host
from skylarkmq.broker.config.parsing import from_file
from skylarkmq.broker.config.sections import Machine, load_broker
from tests.interop.go_commands import go_command

pytestmark = pytest.mark.interop  # the first build of helm

ROOT: Final = Path(__file__).resolve().parents[2]
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
CHART: Final = ROOT / "deploy" / "helm" / "skylark"
VERSIONS: Final = ("1.25", "1.31", "1.34")
MATCH: Final = (
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
)
MONITORED: Final = "serviceMonitor.enabled=true"
EVERYTHING: Final = (
    MONITORED, "advertisedHost=203.0.113.9", "persistence.storageClass=fast", "podAnnotations.team=a",
    "imagePullSecrets[0].name=registry",
        "nodeSelector.disk=nvme",
        "tolerations[0].key=mq",
        "serviceMonitor.labels.a=b",
    "extraVolumes[0].name=keys", "extraVolumes[0].secret.secretName=keys", "env[0].name=TZ", "env[0].value=UTC",
    "extraVolumeMounts[0].name=keys", "extraVolumeMounts[0].mountPath=/keys", f"image.digest=sha256:{'a' * 64}",
    f"{MATCH}.key=disk", f"{MATCH}.operator=Exists",
)  # fmt: skip

Objects = dict[tuple[str, str], dict[str, Any]]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def objects(done: subprocess.CompletedProcess[str]) -> Objects:
    """Return the rendered objects by kind and name."""
    assert done.returncode == 0, done.stderr
    found = [document for document in yaml.safe_load_all(done.stdout) if document is not None]
    by_name = {(document["kind"], document["metadata"]["name"]): document for document in found}
    assert len(by_name) == len(found)
    return by_name


def kustomized(directory: str) -> Objects:
    return objects(run(go_command("kustomize"), "build", KUBERNETES / directory))


def charted(*values: str, release: str = "skylark", kube_version: str = VERSIONS[0]) -> Objects:
    settings = [part for value in values for part in ("--set", value)]
    version = ("--kube-version", kube_version)
    return objects(run(go_command("helm"), "template", release, CHART, "--namespace", "mq", *version, *settings))


def check_service_monitor(monitor: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> None:
    """Check the fields that the Prometheus operator reads: exactly one service has the selected labels and port."""
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert set(monitor["spec"]) == {"jobLabel", "selector", "endpoints"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert set(endpoint) == {"port", "path", "interval", "scrapeTimeout"}
    assert endpoint["path"] == "/metrics"
    assert int(endpoint["scrapeTimeout"].removesuffix("s")) <= int(endpoint["interval"].removesuffix("s"))
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    scraped = [
        service
        for service in services
        if wanted <= service["metadata"]["labels"].items()
        and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    ]
    assert [service["metadata"]["labels"][monitor["spec"]["jobLabel"]] for service in scraped] == ["skylark"]


def check(rendered: Objects, version: str) -> None:
    """Check all objects against the schemas of a version of Kubernetes, and how they refer to each other."""
    services = [document for (kind, _), document in rendered.items() if kind == "Service"]
    for (kind, _), document in rendered.items():
        if kind == "ServiceMonitor":
            check_service_monitor(document, services)
        else:
            kubernetes_validate.validate(document, version, strict=True)
    ((_, stateful_set),) = [found for found in rendered.items() if found[0][0] == "StatefulSet"]
    spec = stateful_set["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"].items() <= labels
    (headless,) = [service for service in services if service["spec"].get("clusterIP") == "None"]
    assert headless["metadata"]["name"] == spec["serviceName"]
    (container,) = spec["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    for service in services:
        assert service["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for (kind, _), document in rendered.items():
        if kind == "PodDisruptionBudget":
            assert document["spec"]["selector"]["matchLabels"].items() <= labels
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"]["volumes"]}
    assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in rendered
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == {*volumes, *claims}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_valid(version: str) -> None:
    """With and without the ServiceMonitor, which needs the Prometheus operator."""
    base, monitoring = kustomized("base"), kustomized("monitoring")
    check(base, version)
    check(monitoring, version)
    assert monitoring.keys() - base.keys() == {("ServiceMonitor", "skylark")}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [(), (MONITORED,), EVERYTHING, ("podDisruptionBudget.enabled=false",)])
def test_the_chart_is_valid(version: str, values: tuple[str, ...]) -> None:
    """With the defaults, with every value, and under another name."""
    check(charted(*values, kube_version=version), version)
    renamed = charted(*values, release="orders", kube_version=version)
    check(renamed, version)
    assert all(name.startswith("orders-skylark") for _, name in renamed)


def test_helm_lint_has_no_warning() -> None:
    """Strict linting turns warnings into errors."""
    done = run(go_command("helm"), "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("image.digest=latest", "image/digest"),
        ("advertisedhost=10.0.0.5", "advertisedhost"),
        ("advertisedHost=10.0.0.5 ", "advertisedHost"),
        ("terminationGracePeriodSeconds=soon", "terminationGracePeriodSeconds"),
    ],
)
def test_the_chart_refuses_values_that_it_does_not_have(value: str, named: str) -> None:
    """A misspelled value would have no effect; the message names it."""
    done = run(go_command("helm"), "template", "skylark", CHART, "--kube-version", VERSIONS[0], "--set", value)
    assert done.returncode != 0
    assert named in done.stderr


def comparable(rendered: Objects) -> dict[tuple[str, str], Any]:
    """Return the objects without what differs: labels and annotations, and the hash in the name of the ConfigMap."""
    found = {}
    for (kind, name), document in copy.deepcopy(rendered).items():
        document["metadata"].pop("labels", None)
        if kind == "ConfigMap":
            name = document["metadata"]["name"] = name.split("-")[0]
            document["data"] = settings_of(document["data"]["broker.conf"])
        if kind == "StatefulSet":
            template = document["spec"]["template"]
            template["metadata"].pop("annotations", None)
            template["spec"]["volumes"][0]["configMap"]["name"] = "skylark"
            document["spec"]["volumeClaimTemplates"][0]["metadata"].pop("labels", None)
        found[kind, name] = without_instance(document)
    return found


def without_instance(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_instance(item) for key, item in value.items() if key != "app.kubernetes.io/instance"}
    return [without_instance(item) for item in value] if isinstance(value, list) else value


def settings_of(text: str) -> list[tuple[str, str]]:
    return [(given.key, given.text) for given in from_file(text, "broker.conf")]


def test_the_chart_and_the_manifests_are_the_same() -> None:
    """The defaults of the chart give the objects of deploy/kubernetes, apart from labels."""
    assert comparable(charted(MONITORED)) == comparable(kustomized("monitoring"))


def test_the_broker_of_the_pod_advertises_its_stable_name() -> None:
    """The settings of the ConfigMap load without a warning; with those of the image the pod's name is advertised."""
    rendered = kustomized("base")
    ((_, config),) = [found for found in rendered.items() if found[0][0] == "ConfigMap"]
    stateful_set = rendered["StatefulSet", "skylark"]
    host = f"{stateful_set['metadata']['name']}-0"
    full_name = f"{host}.{stateful_set['spec']['serviceName']}.default.svc.cluster.local"
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "POD_IP": "10.244.0.7"}
    pod = pod_host(environment, host, lambda _: full_name)
    machine = Machine(host, "10.244.0.7", Path("/data"), lambda _: "10.244.0.7", pod)
    loaded = load_broker(from_file("bindAddress=0.0.0.0\n" + config["data"]["broker.conf"], "broker.conf"), machine)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config.listen.advertised_host == full_name
    assert str(loaded.config.store.store_path_root_dir).startswith("/data/")
    assert str(loaded.config.access.acl_config_dir).startswith("/data/")


def test_the_pod_is_restricted() -> None:
    """It passes the pod security standard `restricted`, and writes to its volume only."""
    spec = kustomized("base")["StatefulSet", "skylark"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert (
        f"USER {spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}\n"
        in (ROOT / "Dockerfile").read_text()
    )
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert probes == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
