"""The files under deploy/ are true: the sample configuration loads, and the image starts what the package installs."""

import re
import tomllib
from pathlib import Path

from broker.config import Machine, load_broker
from broker.keys import BROKER_KEYS
from broker.settings import from_file

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = (ROOT / "deploy" / "broker.conf").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "deploy" / "docker-compose.yml").read_text()
MACHINE = Machine("broker-a", "10.0.0.5", Path("/data"), str)


def test_the_sample_configuration_is_the_default_one() -> None:
    """The sample loads without a warning, acts on every key in it, and changes nothing that it does not say."""
    loaded = load_broker(from_file(SAMPLE, "broker.conf"), MACHINE)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config == load_broker([], MACHINE).config


def test_what_the_sample_leaves_commented_out_loads_too() -> None:
    """The optional keys of the sample are real keys with values that they can have."""
    everything = re.sub(r"^#(?=[\w.]+=)", "", SAMPLE, flags=re.MULTILINE)
    loaded = load_broker(from_file(everything, "broker.conf"), MACHINE)
    assert loaded.warnings == loaded.notes == []
    assert loaded.config.listen.advertised_host == "10.0.0.5"
    assert loaded.config.broker.namesrv_addresses == ("ns1:9876", "ns2:9876")


def test_the_image_runs_a_command_that_the_package_installs() -> None:
    """CMD and the compose file start console scripts of pyproject.toml, as a user without rights."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (command,) = re.findall(r'^CMD \["(\w+)"\]', DOCKERFILE, flags=re.MULTILINE)
    started = {command, *re.findall(r"^ +command: (\w+)", COMPOSE, flags=re.MULTILINE)}
    assert started == set(scripts)
    assert re.search(r"^USER (?!root|0)", DOCKERFILE, flags=re.MULTILINE)


def test_variables_of_image_and_compose_file_are_settings() -> None:
    """Each SKYLARK_ variable stands for a key that is acted on."""
    known = {key.upper() for key in BROKER_KEYS.known()}
    variables = set(re.findall(r"SKYLARK_(\w+)", DOCKERFILE + COMPOSE))
    assert variables
    assert {variable.replace("_", "") for variable in variables} <= known
