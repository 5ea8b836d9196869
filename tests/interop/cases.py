"""The parameters of tests/interop: which clients there are, what each can do, and who meets whom.

CLIENTS are command lines with their traits; CASES put a producer and two group members together. A new client is a
driver in clients/, a recipe in toolchain.py, a line in each table here, and what it lacks in matrix.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop import toolchain
from tests.interop.plan import ASYNC, BATCHED, ONEWAY, SYNC

# From a client's HOME to its command line; builds the driver first if need be.
Command = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Client:
    title: str
    package: str  # where it comes from, with its version
    command: Command
    modes: tuple[str, ...]
    zero_bytes: bool = True  # its bodies may hold byte 0
    empty_bodies: bool = True  # its push consumer survives a message without a body


@dataclass(frozen=True)
class Case:
    name: str
    producer: str
    members: tuple[str, str]
    expected_move_s: float = 2.0  # for the queues of a leaver to move; printed, not asserted

    def clients(self) -> list[Client]:
        return [CLIENTS[name] for name in (self.producer, *self.members)]


def java(version: str, *options: str) -> Command:
    def command(home: Path) -> list[str]:
        built = toolchain.java_driver(version)
        homes = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Drocketmq.log.root={home}")
        sparing = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return ["java", *sparing, *homes, *options, "-cp", f"{built}/classes:{built}/lib/*", "Driver"]

    return command


def go(_home: Path) -> list[str]:
    return [str(toolchain.go_driver() / "driver")]


def cpp(_home: Path) -> list[str]:
    built = toolchain.cpp_driver()
    return [str(built / "bin" / "python"), str(built / "driver.py")]


def node(_home: Path) -> list[str]:
    return ["node", str(toolchain.node_driver() / "driver.js")]


ALL_MODES = (SYNC, ASYNC, ONEWAY, BATCHED)
BINARY_HEADERS = "-Drocketmq.serialize.type=ROCKETMQ"
MAVEN = "`org.apache.rocketmq:rocketmq-client:{}` (Maven)"

CLIENTS = {
    # Java 4.9 dereferences a missing body, and stalls.
    "java-4.9.8": Client("Java 4.9.8", MAVEN.format("4.9.8"), java("4.9.8"), ALL_MODES, empty_bodies=False),
    "java-4.9.8-binary": Client(
        "Java 4.9.8, binary headers",
        f"the same with `{BINARY_HEADERS}`",
        java("4.9.8", BINARY_HEADERS),
        ALL_MODES,
        empty_bodies=False,
    ),
    "java-5.3.3": Client("Java 5.3.3", MAVEN.format("5.3.3"), java("5.3.3"), ALL_MODES),
    "go-2.1.2": Client("Go 2.1.2", "`github.com/apache/rocketmq-client-go/v2@v2.1.2` (Go modules)", go, ALL_MODES),
    "cpp-0.4.4": Client(
        "C++",
        "`rocketmq==0.4.4` (PyPI), a wrapper that brings the C++ library along",
        cpp,
        (SYNC, ASYNC, ONEWAY),  # its batch is not a batch on the wire
        zero_bytes=False,
    ),
    "ali-ons-3.12": Client("Node, ali-ons 3.12", "`ali-ons@3.12.0` (npm)", node, (SYNC,)),
}

CASES = [
    Case("java-4.9.8", "java-4.9.8", ("java-4.9.8", "java-4.9.8")),
    Case("java-4.9.8-binary", "java-4.9.8-binary", ("java-4.9.8-binary", "java-4.9.8-binary")),
    Case("java-5.3.3", "java-5.3.3", ("java-5.3.3", "java-5.3.3")),
    Case("go-2.1.2", "go-2.1.2", ("go-2.1.2", "go-2.1.2")),
    Case("cpp-0.4.4", "cpp-0.4.4", ("cpp-0.4.4", "cpp-0.4.4")),
    Case("ali-ons-3.12", "ali-ons-3.12", ("ali-ons-3.12", "ali-ons-3.12"), expected_move_s=12.0),  # ignores notices
    Case("java-to-java-and-go", "java-4.9.8", ("java-4.9.8", "go-2.1.2")),
    Case("go-to-go-and-java", "go-2.1.2", ("go-2.1.2", "java-5.3.3")),
]
