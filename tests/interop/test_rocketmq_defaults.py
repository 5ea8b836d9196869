"""docs/hooks/rocketmq_defaults.json has the defaults of RocketMQ's configuration classes, for keys that we have too.

The page of settings compares our defaults with them. `python -m tests.interop.test_rocketmq_defaults` writes the file;
run it after you add a key of RocketMQ to `broker/config/keys.py`.
"""

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from docs.hooks.settings_page import COMMIT_LOG, JVM_PROPERTIES, MACHINE
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import Setting
from tests.interop.brokers import APACHE_VERSIONS
from tests.interop.toolchain import ROOT, apache_broker

PROGRAM: Final = Path(__file__).parent / "defaults" / "Defaults.java"
FILE: Final = ROOT / "docs" / "hooks" / "rocketmq_defaults.json"
SMALL_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={MACHINE.home}")
NETTY: Final = "org.apache.rocketmq.remoting.netty.NettyServerConfig"
BROKER: Final = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    NETTY,
)
AUTH: Final = {"4.9.7": (), "5.3.3": ("org.apache.rocketmq.auth.config.AuthConfig",)}
NAMESRV: Final = ("org.apache.rocketmq.common.namesrv.NamesrvConfig", NETTY)
SET_BY_THE_BROKER: Final = {
    "brokerIP1": MACHINE.address,
    "brokerIP2": MACHINE.address,
    "brokerName": MACHINE.host_name,
    "deleteWhen": "4",  # 04
    "listenPort": "10911",
    COMMIT_LOG: "storePathRootDir/commitlog",
    "useTLS": "",  # as the JVM property tls.enable
}
"""Defaults that depend on the machine, that the start of the broker sets, or that our page shows in another form."""
SET_BY_THE_NAME_SERVER: Final = {"listenPort": "9876"}

pytestmark = pytest.mark.interop

Defaults = dict[str, dict[str, str]]


def printed(version: str) -> Defaults:
    """Return the defaults of the fields of each class of a version."""
    classes = [*BROKER, *AUTH[version], *NAMESRV]
    command = ["java", *SMALL_JVM, "-cp", str(apache_broker(version) / "lib" / "*"), str(PROGRAM), *classes]
    with TemporaryDirectory() as directory:  # for logs, which are below user.home
        text = subprocess.run(command, cwd=directory, capture_output=True, check=True, text=True).stdout
    found: Defaults = defaultdict(dict)
    for name, key, value in re.findall(r"^([\w.]+)\t(\w+)\t(.*)$", text, re.MULTILINE):  # logback writes other lines
        found[name][key] = value
    return found


def of_classes(defaults: Defaults, classes: Iterable[str]) -> dict[str, str]:
    """Return the defaults of several classes together."""
    return {key: value for name in classes for key, value in defaults[name].items()}


def by_key(settings: Iterable[Setting], versions: Mapping[str, Mapping[str, str]]) -> Defaults:
    """Return the default in each version that has the key, by key."""
    keys = (one.key for one in settings if not one.key.startswith(JVM_PROPERTIES))
    return {key: {version: found[key] for version, found in versions.items() if key in found} for key in keys}


def rocketmq_defaults() -> Defaults:
    """Return the defaults by key and version. The prefix "mqnamesrv " marks those of the name server that differ."""
    namesrv, both = {}, {}
    for version in APACHE_VERSIONS:
        defaults = printed(version)
        namesrv[version] = of_classes(defaults, NAMESRV) | SET_BY_THE_NAME_SERVER
        both[version] = namesrv[version] | of_classes(defaults, (*BROKER, *AUTH[version])) | SET_BY_THE_BROKER
    found = by_key(BROKER_KEYS.settings, both)
    of_namesrv = by_key(NAMESRV_KEYS.settings, namesrv)
    differing = {f"mqnamesrv {key}": texts for key, texts in of_namesrv.items() if texts != found[key]}
    return {key: texts for key, texts in sorted(found.items()) if texts} | differing


def test_the_file_has_the_defaults_of_rocketmq() -> None:
    """Those of 4.9.7 and 5.3.3, for each key that `mqbroker` or `mqnamesrv` has."""
    assert json.loads(FILE.read_text()) == rocketmq_defaults()


if __name__ == "__main__":
    FILE.write_text(json.dumps(rocketmq_defaults(), indent=1) + "\n")
