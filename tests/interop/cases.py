"""The parameters of tests/interop: the clients, their capabilities, and which clients are tested together.

CLIENTS are command lines with capabilities; each of CASES is a producer and two members of a group. To add a client,
write a driver in clients/, add a recipe to toolchain.py and an entry to each table here, and list the features that
it lacks in matrix.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.interop import toolchain
from tests.interop.plan import ASYNC, BATCHED, ONEWAY, SYNC

# Returns a client's command line for its HOME; builds the driver first if necessary.
Command = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Client:
    title: str
    package: str  # the package and its version, with the registry
    command: Command
    modes: tuple[str, ...]
    zero_bytes: bool = True  # its bodies may contain zero bytes
    empty_bodies: bool = True  # its push consumer accepts a message without a body


@dataclass(frozen=True)
class Case:
    name: str
    producer: str
    members: tuple[str, str]
    expected_move_s: float = 2.0  # until the queues of a departed member have moved; printed, not asserted

    def clients(self) -> list[Client]:
        return [CLIENTS[name] for name in (self.producer, *self.members)]


def java(version: str, *options: str) -> Command:
    def command(home: Path) -> list[str]:
        built = toolchain.java_driver(version)
        homes = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Drocketmq.log.root={home}")
        small_jvm = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return ["java", *small_jvm, *homes, *options, "-cp", f"{built}/classes:{built}/lib/*", "Driver"]

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
    # Java 4.9 dereferences a missing body and stalls.
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
        (SYNC, ASYNC, ONEWAY),  # its batch call does not send a batch request
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
    # ali-ons ignores the broker's notifications of group changes.
    Case("ali-ons-3.12", "ali-ons-3.12", ("ali-ons-3.12", "ali-ons-3.12"), expected_move_s=12.0),
    Case("java-to-java-and-go", "java-4.9.8", ("java-4.9.8", "go-2.1.2")),
    Case("go-to-go-and-java", "go-2.1.2", ("go-2.1.2", "java-5.3.3")),
]
