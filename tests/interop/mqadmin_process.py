"""RocketMQ's own mqadmin: one process that runs many commands (mqadmin/Admin.java), and parsers of its output.

Tests compare the content of the output, not its layout: tables become rows of cells, `name: value` lines become dicts.
Times in the output are local times.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylarkmq.protocol import javajson
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.raw import Credentials
from tests.interop.toolchain import mqadmin

VERSIONS: Final = ("4.9.7", "5.3.3")
SILENT: Final = '<configuration><root level="OFF"/></configuration>'
LOGGING: Final = ("logback_tools.xml", "rmq.tools.logback.xml")
SMALL_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.security.manager=allow")
ESCAPES: Final = {"\\n": "\n", "\\\\": "\\"}


class CommandOutput(NamedTuple):
    """The output of a command, from stdout and stderr, and its exit code."""

    command: str
    code: int
    text: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each line after the first heading, up to the first empty line. Two spaces end a cell."""
        lines = self.text.splitlines()
        first = next((at for at, line in enumerate(lines) if line.startswith("#")), len(lines) - 1)
        table = lines[first + 1 :]
        end = next((at for at, line in enumerate(table) if not line.strip()), len(table))
        return [re.split(r"\s{2,}", line.strip()) for line in table[:end]]

    @property
    def fields(self) -> dict[str, str]:
        """The values of lines such as `name: value` and `name = value`."""
        pairs = (re.split(r"\s*[:=]\s+", line, maxsplit=1) for line in self.text.splitlines())
        return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}

    @property
    def json(self) -> Any:
        """The whole output, decoded as one JSON value in fastjson's dialect."""
        return javajson.loads(self.text)

    @property
    def lines(self) -> list[str]:
        """The lines that are not empty."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]


class MqadminProcess:
    """A running mqadmin of one version; `home` is its own directory. With `credentials` it signs its requests."""

    def __init__(self, version: str, home: Path, namesrv: str, credentials: Credentials | None = None) -> None:
        self.version = version
        built = mqadmin(version)
        self.home = home
        (home / "conf").mkdir(parents=True)
        for name in LOGGING:
            (home / "conf" / name).write_text(SILENT)
        if credentials is not None:
            self.sign_with(credentials)
        homes = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Drocketmq.log.root={home}")
        inherited = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        environment = inherited | {"HOME": str(home), "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": namesrv}
        self.commands_run: set[str] = set()
        self._log = (home / "stderr.log").open("wb")
        self._process = subprocess.Popen(
            ["java", *SMALL_JVM, *homes, "-cp", f"{built}/classes:{built}/lib/*", "Admin"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __repr__(self) -> str:
        return f"<MqadminProcess {self.version} pid={self._process.pid}>"

    @property
    def is_five(self) -> bool:
        """Whether the version is 5.x, which has more commands and more columns."""
        return self.version.startswith("5")

    def commands(self) -> set[str]:
        """Return the names of all commands of this version."""
        lines = self._call([]).text.splitlines()
        return {line.split()[0] for line in lines if line.startswith("   ")}

    def sign_with(self, credentials: Credentials) -> None:
        """Sign the requests of the following commands."""
        keys = f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n"
        (self.home / "conf" / "tools.yml").write_text(keys)

    def run(self, command: str, *arguments: object) -> CommandOutput:
        """Run a command and return its output, whether it succeeds or fails."""
        self.commands_run.add(command)
        return self._call([command, *map(str, arguments)])

    def _call(self, words: list[str]) -> CommandOutput:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"mqadmin exited unexpectedly: {(self.home / 'stderr.log').read_text()}"
        code, _, text = line.rstrip("\n").partition("\t")
        return CommandOutput(" ".join(words), int(code), re.sub(r"\\[n\\]", lambda match: ESCAPES[match[0]], text))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PROCESS_LIMIT_S)
        self._process.stdout.close()
        self._log.close()
