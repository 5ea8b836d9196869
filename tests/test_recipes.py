"""The recipes of CONTRIBUTING.md, followed to the letter: the files that they name are all that a change needs.

Each recipe is applied to a copy of the sources, as a contributor would: the rows of its table are the files, and here
are the lines for them. A broker of the copy then serves the new request, with the new setting and the new metric, and
its `mqadmin` has the new command.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.harness.limits import PROCESS_LIMIT_S

ROOT: Final = Path(__file__).resolve().parent.parent
TEXT: Final = (ROOT / "CONTRIBUTING.md").read_text()


class Line(NamedTuple):
    """What a recipe inserts in a file after an anchor, which occurs once."""

    file: str
    anchor: str
    inserted: str


RECIPES: Final = {
    "A request code": (
        Line("protocol/codes.py", '    """Codes of requests."""\n\n', "    GET_PROBE = 999\n"),
        Line(
            "protocol/headers/stats.py",
            "from skylarkmq.protocol.headers.fields import BoolText, Header, Int32, Int64\n",
            '\n\nclass ProbeHeader(Header, gc=False, rename="camel"):\n    probe_name: str\n',
        ),
        Line(
            "broker/processors/admin/delay_offset.py",
            "        return {RequestCode.GET_ALL_DELAY_OFFSET: self.list_all",
            ", RequestCode.GET_PROBE: self.probe",
        ),
        Line(
            "broker/processors/admin/delay_offset.py",
            "        return RemotingCommand.response(body=self._offsets.encode_now())\n",
            "\n    def probe(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:\n"
            "        return RemotingCommand.response(body=command.header(ProbeHeader).probe_name.encode())\n",
        ),
        Line(
            "broker/processors/admin/delay_offset.py",
            "from skylarkmq.protocol.command import RemotingCommand\n",
            "from skylarkmq.protocol.headers.stats import ProbeHeader\n",
        ),
        Line(
            "broker/access/requests/table.py",
            "BROKER_REQUIREMENTS: Final = _by_code(\n",
            "    _row(C.GET_PROBE, CLUSTER, GET),\n",
        ),
    ),
    "A setting": (
        Line(
            "broker/config/sections.py",
            '    """The broker\'s identity and its features for clients. Periods in ms."""\n\n',
            "    probe_enable: bool = False  # a probe\n",
        ),
        Line(
            "broker/config/keys.py",
            'BROKER: Final = section(\n    "broker",\n',
            '    ("probeEnable", "probe_enable", FLAG),\n',
        ),
    ),
    "A metric": (
        Line("broker/delivery/calls/client_calls.py", "    failed: int\n    refused: int\n", "    probes: int = 7\n"),
        Line(
            "broker/ops/catalogue.py",
            '    ("skylark_client_calls_waiting", GAUGE, "", "Requests to clients that wait for their response."),\n',
            '    ("skylark_probes_total", COUNTER, "", "Probes."),\n',
        ),
        Line(
            "broker/ops/collectors/calls.py",
            '        yield Value("skylark_client_calls_waiting", (), calls.waiting)\n',
            '        yield Value("skylark_probes_total", (), calls.probes)\n',
        ),
    ),
    "A command of `mqadmin`": (
        Line(
            "clients/mqadmin/rocketmq/cluster.py",
            "COMMANDS = Commands()\nlog = logging.getLogger(__name__)\n",
            '\n\n@COMMANDS.add("probeCluster", "Probe a cluster.")\n'
            "async def probe_cluster(admin: Admin) -> None:\n"
            '    printf("probed %d%n", len((await admin.cluster()).broker_addr_table))\n',
        ),
    ),
}

PROBE: Final = r"""
import re
import sys
from pathlib import Path
from urllib.request import urlopen

from skylarkmq.broker.app.in_process import free_ports, running
from skylarkmq.clients.mqadmin.app.cli import run
from tests.harness.raw import RawClient

[port] = free_ports(1)
with running(Path(sys.argv[1]), {"probeEnable": True, "metricsPromExporterPort": port}) as broker:
    host, _, broker_port = broker.address.partition(":")
    with RawClient(host, int(broker_port)) as client:
        print("request", *client.call(999, {"probeName": "a"})[::3])
        print("setting", b"probeEnable=true" in client.call(26).body)
    with urlopen(f"http://{host}:{port}/metrics") as page:
        [probes] = re.findall(r"^skylark_probes_total{.*} (.*)$", page.read().decode(), re.MULTILINE)
        print("metric", probes)
    print("command", run(["probeCluster", "-n", broker.namesrv]))
"""


def documented(recipe: str) -> list[str]:
    """Return the files in the table of a recipe."""
    section = TEXT.partition(f"\n### {recipe}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_the_files_that_it_needs(recipe: str) -> None:
    """The lines here are for the files of its table: a folder or a file each, in its order."""
    files = list(dict.fromkeys(line.file for line in RECIPES[recipe]))
    named = documented(recipe)
    assert len(named) == len(files)
    assert [file for file, name in zip(files, named, strict=True) if not file.startswith(name)] == []


@pytest.mark.daemon
def test_the_recipes_are_complete(tmp_path: Path) -> None:
    """With the lines of all recipes, and no other, a broker serves what they add."""
    for folder in ("protocol", "broker", "clients", "src"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file, anchor, inserted in (line for lines in RECIPES.values() for line in lines):
        path = tmp_path / file
        before, found, after = path.read_text().partition(anchor)
        assert found, (file, anchor)
        path.write_text(before + found + inserted + after)
    environment = {"PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROBE, str(tmp_path / "run")]
    ran = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=PROCESS_LIMIT_S
    )
    expected = ["request 0 b'a'", "setting True", "metric 7.0", "probed 1", "command 0"]
    assert ran.stdout.splitlines() == expected, ran.stderr
