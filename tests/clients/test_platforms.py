"""The SDK on platforms without the Linux-only modules, and what its import loads.

Subprocesses take those modules away and use the SDK against a broker in this process.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.harness.limits import PROCESS_LIMIT_S

MISSING_ELSEWHERE = (
    "uvloop", "fcntl", "resource", "grp", "pwd", "termios", "tty", "pty", "syslog", "posix", "readline", "curses",
    "_posixshmem", "_posixsubprocess", "spwd", "crypt", "nis", "ossaudiodev",
)  # fmt: skip
"""Modules that macOS or Windows do not have."""

WITHOUT_LINUX = f"""
import asyncio, os, subprocess, sys  # the standard library itself may use them

for name in {MISSING_ELSEWHERE!r}:
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "O_CLOEXEC", "sched_setaffinity", "getuid", "fdatasync", "sendfile"):
    if hasattr(os, name):
        delattr(os, name)

import skylarkmq
from skylarkmq import ConsumeFrom, Message, blocking


for name in skylarkmq.__all__:
    getattr(skylarkmq, name)


async def main(namesrv):
    async with skylarkmq.connect(namesrv) as mq, mq.producer("p") as producer, mq.pull_consumer(
        "g", consume_from=ConsumeFrom.FIRST
    ) as consumer:
        await producer.send(Message("Elsewhere", b"asyncio"))
        await consumer.subscribe("Elsewhere")
        (message,) = await consumer.poll(timeout_s=20)
        print(message.body.decode())


asyncio.run(main(sys.argv[1]))
with blocking.connect(sys.argv[1]) as mq, mq.producer("p") as producer:
    queue = producer.send(Message("Threads", b"blocking")).queue
    with mq.pull_consumer("h", consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([queue])
        (message,) = consumer.poll(timeout_s=20)
        print(message.body.decode())
"""

IMPORTED = """
import sys, time

before = set(sys.modules)
import skylarkmq

for name in skylarkmq.__all__:
    getattr(skylarkmq, name)
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(name for name in loaded if name not in sys.stdlib_module_names))
"""

MAY_BE_IMPORTED = {
    "skylarkmq",
    # what the SDK depends on
    "isal", "msgpack", "msgspec",
    # of Cython's runtime, if protocol/compiled is compiled
    "_cython", "cython_runtime",
    # of msgspec, for annotations
    "typing_extensions",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.daemon
def test_the_sdk_sends_and_consumes_without_linux_only_modules(broker: InProcessBroker, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LINUX, broker.namesrv],
        capture_output=True, text=True, timeout=PROCESS_LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "asyncio\nblocking\n"), done.stderr


@pytest.mark.daemon
def test_the_import_loads_only_the_dependencies_of_the_sdk() -> None:
    """Not numpy, starlette, pydantic, rich or prometheus_client."""
    command = [sys.executable, "-c", IMPORTED]
    names = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROCESS_LIMIT_S).stdout.split()
    assert {"_cython" if name.startswith("_cython") else name for name in names} <= MAY_BE_IMPORTED
    assert {"skylarkmq", "msgspec"} <= set(names)
