"""The image's dependencies are locked by hash, the SBOM lists exactly the lock, and the release workflow audits it."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WORKFLOW = (ROOT / ".github" / "workflows" / "release.yml").read_text()
CHECK = (ROOT / ".ci" / "run").read_text()
WANTED = {
    "requirements.lock": [
        *PYPROJECT["project"]["dependencies"],
        *PYPROJECT["project"]["optional-dependencies"]["broker"],
    ],
    "build.lock": PYPROJECT["build-system"]["requires"],
}
PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
MACHINES = ("x86_64", "aarch64")
AUDIT = "pip-audit --strict --require-hashes --disable-pip -r deploy/{lock}"


class Locked(NamedTuple):
    requirement: Requirement
    hashes: list[str]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        return specifier.version

    def applies(self, python: str, machine: str) -> bool:
        environment = {
            "python_version": python.rpartition(".")[0], "python_full_version": python, "sys_platform": "linux",
            "platform_system": "Linux", "platform_machine": machine,
        }  # fmt: skip
        return self.requirement.marker is None or self.requirement.marker.evaluate(environment)


def locked(lock: str) -> list[Locked]:
    """Return the entries of a lock file, in its order."""
    lines = (DEPLOY / lock).read_text().replace("\\\n", " ").splitlines()
    entries = [line.split(" --hash=") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return [Locked(Requirement(entry[0]), [found.strip() for found in entry[1:]]) for entry in entries]


@pytest.mark.parametrize("lock", WANTED)
def test_every_locked_package_has_one_version_and_hashes(lock: str) -> None:
    """An entry is name==version with SHA-256 hashes, none twice."""
    assert locked(lock)
    for entry in locked(lock):
        assert [specifier.operator for specifier in entry.requirement.specifier] == ["=="], entry.name
        assert "*" not in entry.version
        assert entry.hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", found) for found in entry.hashes), entry.name
        assert len(set(entry.hashes)) == len(entry.hashes)


@pytest.mark.parametrize("lock", WANTED)
def test_a_lock_contains_no_url(lock: str) -> None:
    """Locks contain no URL or option: packages come from the index that the installing machine uses."""
    text = (DEPLOY / lock).read_text()
    assert [entry.name for entry in locked(lock) if entry.requirement.url] == []
    assert re.findall(r"://|^\s*-(?!-hash=).*", text, flags=re.MULTILINE) == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", WANTED)
def test_a_lock_satisfies_the_requirements_of_pyproject(lock: str, python: str, machine: str) -> None:
    """On each supported Python and machine every package has one version, within the declared range."""
    entries = [entry for entry in locked(lock) if entry.applies(python, machine)]
    versions = {entry.name: entry.version for entry in entries}
    assert len(versions) == len(entries)
    unmet = [
        text
        for text in WANTED[lock]
        if not Requirement(text).specifier.contains(versions.get(canonicalize_name(Requirement(text).name), "0"))
    ]
    assert unmet == []


def test_the_image_installs_only_what_is_locked() -> None:
    """Each pip command of the image checks hashes or has no index, and base images have exact tags."""
    commands = re.findall(r"/bin/pip (.*?)(?: &&|$)", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    assert len(commands) == 4
    assert [c for c in commands if "--require-hashes" not in c and "--no-index --no-deps" not in c] == []
    assert set(re.findall(r"--require-hashes -r /locks/(\S+)", DOCKERFILE)) == set(WANTED)
    bases = dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, flags=re.MULTILINE))
    sources = re.findall(r"^FROM (\S+)", DOCKERFILE, flags=re.MULTILINE)
    assert {source for source in sources if source.startswith("$")} == {f"${{{name}}}" for name in bases}
    for base in bases.values():
        assert re.fullmatch(r"python:3\.\d+\.\d+-[a-z-]+", base)


def test_the_release_gives_the_digests_of_the_base_images() -> None:
    """A tag can be moved: the workflow passes each base image of the Dockerfile with the digest of its tag."""
    bases = re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert len(bases) == 2
    for name, base in bases:
        assert f"{name}: {base}\n" in WORKFLOW
        assert f'--build-arg "{name}=$(pinned "${name}")"' in WORKFLOW


def test_the_build_context_contains_the_locks() -> None:
    """.dockerignore excludes everything except the named files, and names the locks."""
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert kept[0] == "*"
    assert {f"!deploy/{lock}" for lock in WANTED} <= set(kept)


@pytest.fixture(scope="module")
def sbom(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the SBOM made by the command of .ci/run; the generator validates it against the CycloneDX schema."""
    target = tmp_path_factory.mktemp("build") / "new" / "sbom.cdx.json"
    subprocess.run([sys.executable, str(DEPLOY / "sbom.py"), str(target)], check=True, capture_output=True)
    written: dict[str, Any] = json.loads(target.read_text())
    return written


@pytest.mark.packaging
def test_the_sbom_lists_exactly_the_lock(sbom: dict[str, Any]) -> None:
    """Names, versions and hashes of the components are those of requirements.lock."""
    listed = sorted(
        (component["name"], component["version"], component["purl"], *sorted(hashes_of(component)))
        for component in sbom["components"]
    )
    assert listed == sorted(
        (entry.name, entry.version, f"pkg:pypi/{entry.name}@{entry.version}", *sorted(entry.hashes))
        for entry in locked("requirements.lock")
    )


def hashes_of(component: dict[str, Any]) -> list[str]:
    found = [digest for reference in component["externalReferences"] for digest in reference["hashes"]]
    assert {digest["alg"] for digest in found} == {"SHA-256"}
    return [f"sha256:{digest['content']}" for digest in found]


@pytest.mark.packaging
def test_the_sbom_is_cyclonedx_and_describes_this_project(sbom: dict[str, Any]) -> None:
    """Format, specification version, and name, version and license of the main component."""
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    described = sbom["metadata"]["component"]
    assert (described["type"], described["name"], described["version"]) == (
        "application", PYPROJECT["project"]["name"], PYPROJECT["project"]["version"],
    )  # fmt: skip
    assert [entry["license"]["id"] for entry in described["licenses"]] == [PYPROJECT["project"]["license"]]


def test_the_release_workflow_audits_and_the_check_does_not() -> None:
    """The workflow audits both locks with the documented command; .ci/run makes the SBOM and does not audit."""
    documented = (ROOT / "SECURITY.md").read_text()
    for lock in WANTED:
        command = AUDIT.format(lock=lock)
        assert f"run: {command}\n" in WORKFLOW
        assert f"{command}\n" in documented
    assert "pip-audit" not in CHECK
    assert "deploy/sbom.py" in CHECK


def test_actions_of_the_workflow_are_pinned_to_commits() -> None:
    """Actions are pinned to commits, because a tag can be moved."""
    actions = re.findall(r"uses: (\S+)", WORKFLOW)
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
