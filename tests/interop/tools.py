"""RocketMQ's own mqadmin, one process for many commands (mqadmin/Admin.java), and what it prints, taken apart.

What a command says of things is compared, not how it lays them out: tables become rows of cells, lists of
`name: value` become maps. Times of theirs are in local time.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylarkmq.protocol import javajson
from tests.interop.toolchain import mqadmin

VERSIONS: Final = ("4.9.7", "5.3.3")
SILENT: Final = '<configuration><root level="OFF"/></configuration>'
LOGGING: Final = ("logback_tools.xml", "rmq.tools.logback.xml")
SPARING: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.security.manager=allow")
ESCAPES: Final = {"\\n": "\n", "\\\\": "\\"}


class Said(NamedTuple):
    """What a command printed, on either stream, and the exit code that it asked for."""

    command: str
    code: int
    text: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each line behind the first heading, up to the first empty line; a cell ends at two spaces."""
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
        """All of it as one JSON value of fastjson's."""
        return javajson.loads(self.text)

    @property
    def lines(self) -> list[str]:
        """Those that are not empty."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]


class Tools:
    """A running mqadmin of one version; `home` is its own."""

    def __init__(self, version: str, home: Path, namesrv: str) -> None:
        self.version = version
        built = mqadmin(version)
        (home / "conf").mkdir(parents=True)
        for name in LOGGING:
            (home / "conf" / name).write_text(SILENT)
        homes = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Drocketmq.log.root={home}")
        inherited = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        environment = inherited | {"HOME": str(home), "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": namesrv}
        self.home = home
        self.tried: set[str] = set()  # the commands that were run
        self._log = (home / "stderr.log").open("wb")
        self._process = subprocess.Popen(
            ["java", *SPARING, *homes, "-cp", f"{built}/classes:{built}/lib/*", "Admin"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __repr__(self) -> str:
        return f"<Tools {self.version} pid={self._process.pid}>"

    @property
    def is_five(self) -> bool:
        """Whether it is of 5.x, which has more commands and more columns."""
        return self.version.startswith("5")

    def commands(self) -> set[str]:
        """The names of all commands that there are."""
        lines = self._ask([]).text.splitlines()
        return {line.split()[0] for line in lines if line.startswith("   ")}

    def run(self, command: str, *arguments: object) -> Said:
        """Run a command; what it printed, whatever became of it."""
        self.tried.add(command)
        return self._ask([command, *map(str, arguments)])

    def _ask(self, words: list[str]) -> Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"mqadmin has died: {(self.home / 'stderr.log').read_text()}"
        code, _, text = line.rstrip("\n").partition("\t")
        return Said(" ".join(words), int(code), re.sub(r"\\[n\\]", lambda match: ESCAPES[match[0]], text))

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()
        self._log.close()
