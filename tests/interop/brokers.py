"""The broker under test: a process with free loopback ports and its own store, started and stopped by a test.

The suite runs against Skylark or, to record the expected behavior, against RocketMQ's own broker:

    pytest tests/interop --broker-under-test=apache-4.9.7

A broker counts as started when its name server returns a route of TBW102, the topic that every client queries before
it creates another topic.
"""

import json
import os
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from skylarkmq.blocking import PushConsumer
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports
from tests.harness.raw import Credentials, RawClient, RawResponse
from tests.interop.toolchain import ROOT, apache_broker, exclusive

APACHE_VERSIONS = ("4.9.7", "5.3.3")
POLL_S = 0.02
LOG_TAIL_CHARS = 3_000

SEND_MESSAGE, PULL_MESSAGE, UPDATE_AND_CREATE_TOPIC = 10, 11, 17
GET_CONSUMER_LIST_BY_GROUP, GET_ROUTEINFO_BY_TOPIC = 38, 105
UPDATE_BROKER_CONFIG, GET_BROKER_RUNTIME_INFO, UPDATE_AND_CREATE_GROUP = 25, 28, 200
OK, PULL_NOT_FOUND = 0, 19
READ_WRITE = 6
PULL_WITH_SUBSCRIPTION = 4
COMPRESSED = 1

# The fields of a record up to sysFlag. With IPv4 hosts the body starts at BODY_AT, after its 4-byte length.
RECORD_HEAD = struct.Struct(">iiiiiqqi")
BODY_AT = 88

# Writes warnings of a 4.9 broker to the log file of the test; 5.x uses its own logging configuration.
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %c %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

SMALL_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA_17_FOR_4_9 = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class StoredMessage(NamedTuple):
    sys_flag: int
    body: bytes  # as stored: deflated if COMPRESSED is set in sys_flag
    properties: dict[str, str]


class BrokerUnderTest:
    """Operations on the running broker, by raw frames. `namesrv` and `broker_address` are host:port."""

    def __init__(
        self,
        namesrv_port: int,
        broker_port: int,
        started_in_s: float,
        log: Path,
        process: subprocess.Popen[bytes],
        tls: ssl.SSLContext | None,
        credentials: Credentials | None,
    ) -> None:
        self.process = process
        self.namesrv = f"{LOOPBACK}:{namesrv_port}"
        self.broker_address = f"{LOOPBACK}:{broker_port}"
        self.started_in_s = started_in_s
        self.log = log
        self._tls = tls
        self._credentials = credentials
        self._name_server = RawClient(LOOPBACK, namesrv_port, tls=tls, credentials=credentials)
        self._broker = RawClient(LOOPBACK, broker_port, tls=tls, credentials=credentials)

    def with_own_connections(self) -> "BrokerUnderTest":
        """Return the same broker with separate connections, for use in another thread. The caller closes it."""
        ports = [int(address.rpartition(":")[2]) for address in (self.namesrv, self.broker_address)]
        of_process = (self.started_in_s, self.log, self.process)
        return BrokerUnderTest(ports[0], ports[1], *of_process, self._tls, self._credentials)

    def call(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"") -> RawResponse:
        """Send a request to the broker and return the response. Raises AssertionError unless it succeeds."""
        response = self._broker.call(code, ext, body)
        expect(OK, response)
        return response

    def has_sampled(self) -> bool:
        """Return whether statistics are there: RocketMQ 4.9 throws in its first second, when it has no sample yet."""
        return "NoSuchElementException" not in (self._broker.call(GET_BROKER_RUNTIME_INFO, {}).remark or "")

    def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic and wait for its route, because some clients give up on a topic without a route."""
        queue_numbers = {"readQueueNums": queues, "writeQueueNums": queues}
        flags = {"perm": READ_WRITE, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
        ext = {"topic": topic, "defaultTopic": "TBW102", **queue_numbers, **flags}
        expect(OK, self._broker.call(UPDATE_AND_CREATE_TOPIC, ext))
        wait_until(lambda: has_route(self._name_server, topic), f"route of {topic}")

    def dead_letters(self, group: str, count: int) -> list[StoredMessage]:
        """Return the group's dead letters. Waits until there are at least `count`."""
        topic = f"%DLQ%{group}"
        wait_until(lambda: has_route(self._name_server, topic), f"route of {topic}")
        return self.stored(topic, 1, count)

    def set_group(self, group: str, **settings: object) -> None:
        """Create a consumer group; `settings` are fields of its configuration."""
        body = json.dumps({"groupName": group, "consumeEnable": True, "consumeBroadcastEnable": True, **settings})
        expect(OK, self._broker.call(UPDATE_AND_CREATE_GROUP, body=body.encode()))

    def set_config(self, **settings: object) -> None:
        """Change settings of the running broker."""
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        expect(OK, self._broker.call(UPDATE_BROKER_CONFIG, body=text.encode()))

    def send(self, topic: str, queue: int, properties: Mapping[str, str], body: bytes = b"") -> None:
        encoded = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        target = {"topic": topic, "queueId": queue, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
        flags = {"sysFlag": 0, "flag": 0, "reconsumeTimes": 0, "unitMode": False, "batch": False}
        origin = {"producerGroup": "raw", "bornTimestamp": int(time.time() * 1000)}
        ext = {**origin, **target, **flags, "properties": encoded}
        expect(OK, self._broker.call(SEND_MESSAGE, ext, body))

    def stored(self, topic: str, queues: int, count: int) -> list[StoredMessage]:
        """Return the messages of a topic, queue by queue, as pulled. Waits until there are at least `count`."""
        messages: list[StoredMessage] = []

        def all_there() -> bool:
            messages[:] = [message for queue in range(queues) for message in self._pull_all(topic, queue)]
            return len(messages) >= count

        wait_until(all_there, f"{count} messages in {topic}")
        return messages

    def members(self, group: str) -> list[str]:
        """Return the client ids of the group's consumers; empty if it has none."""
        response = self._broker.call(GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return json.loads(response.body)["consumerIdList"] if response.code == OK else []

    def close(self) -> None:
        self._name_server.close()
        self._broker.close()

    def _pull_all(self, topic: str, queue: int) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        while True:
            queue_fields = {
                "consumerGroup": "raw",
                "topic": topic,
                "queueId": queue,
                "subscription": "*",
                "subVersion": 0,
            }
            range_fields = {
                "queueOffset": len(messages),
                "maxMsgNums": 32,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
            }
            response = self._broker.call(
                PULL_MESSAGE, {**queue_fields, **range_fields, "sysFlag": PULL_WITH_SUBSCRIPTION}
            )
            if response.code == PULL_NOT_FOUND:
                return messages
            expect(OK, response)
            messages += parse_records(response.body)


@contextmanager
def running_broker(
    kind: "str | CommandMaker",
    home: Path,
    settings: Mapping[str, object] | None = None,
    ports: tuple[int, int] | None = None,
    tls: ssl.SSLContext | None = None,
    credentials: Credentials | None = None,
) -> Iterator[BrokerUnderTest]:
    """Start a broker with its state below `home`, and stop it on exit.

    `kind` is a key of COMMANDS or a function that returns commands. `settings` are RocketMQ's keys; they override those
    of COMMANDS. `ports` are the ports of the name server and the broker. The test's own connections use `tls` and
    `credentials`.
    """
    namesrv_port, broker_port = ports or broker_ports()
    begun = time.monotonic()
    with ExitStack() as stack:
        make = COMMANDS[kind] if isinstance(kind, str) else kind
        commands = make(home, namesrv_port, broker_port, settings or {})
        daemons: list[subprocess.Popen[bytes]] = []
        for command, environment in commands:
            if daemons:
                stack.callback(daemons[-1].kill)  # a name server stores nothing, and RocketMQ's takes 3 s to stop
            daemons.append(stack.enter_context(daemon(command, environment, home)))
        wait_until(lambda: all_alive(daemons, home) and routes(namesrv_port, "TBW102", tls), "route of TBW102")
        started_in_s = time.monotonic() - begun
        of_process = (started_in_s, log_file(home), daemons[-1])
        broker = BrokerUnderTest(namesrv_port, broker_port, *of_process, tls, credentials)
        stack.callback(broker.close)
        wait_until(broker.has_sampled, "the first sample of the statistics")
        yield broker


SEGMENT_BYTES = 64 << 20
"""Segments are allocated when they are made, and the directories of all tests stay until the end of the session."""
NO_FAST_FAILURE = {"brokerFastFailureEnable": "false"}  # machines that run tests are busy
SHORT_SPIN = {"transactionMetricFlushInterval": 300}
"""A thread of RocketMQ 5 spins for this time after the start, in ms; by default for 3 s."""
RARE_WHEEL_FLUSHES = {"timerFlushIntervalMs": 60_000}
"""RocketMQ 5 compares the 39 MB of its timer wheel byte by byte at each flush. By default that takes a third of a
processor all the time. A broker whose store or timers another one continues keeps the default."""
DEFAULT_WHEEL_FLUSHES = {"timerFlushIntervalMs": 1_000}
Commands = list[tuple[list[str], dict[str, str]]]
CommandMaker = Callable[[Path, int, int, Mapping[str, object]], Commands]


def skylark_commands(home: Path, namesrv_port: int, broker_port: int, settings: Mapping[str, object]) -> Commands:
    defaults = {
        "listenPort": broker_port,
        "embeddedNamesrvPort": namesrv_port,
        "storePathRootDir": home / "store",
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "metricsPromExporterPort": 0,
        **NO_FAST_FAILURE,
    }
    options = [option for name, value in (defaults | dict(settings)).items() for option in ("--set", f"{name}={value}")]
    return [([sys.executable, "-m", "skylarkmq.broker", *options], {})]


def apache_commands(
    version: str,
    home: Path,
    namesrv_port: int,
    broker_port: int,
    settings: Mapping[str, object],
    jvm: Sequence[str] | None = None,
) -> Commands:
    """Return the commands of RocketMQ's name server and broker. They start quickly and need little when idle, unless
    `jvm` has options for a benchmark."""
    quick_jvm = (*SMALL_JVM, *([] if jvm else [class_archive(version)]))
    jars = apache_broker(version) / "lib" / "*"
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    for logging in ("logback_broker.xml", "logback_namesrv.xml"):
        (conf / logging).write_text(LOGBACK)
    broker = {
        "brokerIP1": LOOPBACK,
        "listenPort": broker_port,
        "haListenPort": broker_port + 1,
        "namesrvAddr": f"{LOOPBACK}:{namesrv_port}",
        "storePathRootDir": home / "store",
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        **NO_FAST_FAILURE,
        **({} if jvm else SHORT_SPIN),
        **({} if jvm or "storePathRootDir" in settings else RARE_WHEEL_FLUSHES),
    } | dict(settings)
    broker["storePathCommitLog"] = f"{broker['storePathRootDir']}/commitlog"
    java = [f"-Duser.home={home}", *JAVA_17_FOR_4_9, "-cp", str(jars)]
    environment = {"ROCKETMQ_HOME": str(home)}
    namesrv_file = properties_file(conf / "namesrv.conf", {"listenPort": namesrv_port})
    broker_file = properties_file(conf / "broker.conf", broker)
    return [
        (["java", *quick_jvm, *java, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", namesrv_file], environment),
        (
            ["java", *(jvm or quick_jvm), *java, "org.apache.rocketmq.broker.BrokerStartup", "-c", broker_file],
            environment,
        ),
    ]


def class_archive(version: str) -> str:
    """Return the option of a JVM for the archive of the classes that a broker of this version has loaded.

    A JVM that maps classes instead of loading them starts a broker with two thirds of the CPU time. A broker makes the
    archive at its first start here. A JVM ignores one that does not fit its own version or the jars.
    """
    archive = apache_broker(version) / "classes.jsa"
    with exclusive(f"classes-{version}"):
        if not archive.exists():
            made = archive.with_suffix(".new")
            jvm = (*SMALL_JVM, f"-XX:ArchiveClassesAtExit={made}")
            with TemporaryDirectory() as home, running_broker(partial(apache_commands, version, jvm=jvm), Path(home)):
                pass
            made.rename(archive)
    return f"-XX:SharedArchiveFile={archive}"


COMMANDS: dict[str, CommandMaker] = {
    "skylark": skylark_commands,
    **{f"apache-{version}": partial(apache_commands, version) for version in APACHE_VERSIONS},
}


def properties_file(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@contextmanager
def daemon(command: list[str], environment: dict[str, str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log_file(home).open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PROCESS_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def log_file(home: Path) -> Path:
    return home / "broker.log"


def all_alive(daemons: list[subprocess.Popen[bytes]], home: Path) -> bool:
    dead = [process.args for process in daemons if process.poll() is not None]
    assert not dead, f"exited unexpectedly: {dead}\n{log_file(home).read_text(errors='replace')[-LOG_TAIL_CHARS:]}"
    return True


def wait_until(condition: Callable[[], bool], description: str, deadline_s: float = PROCESS_LIMIT_S) -> None:
    """Poll until the condition holds. Raises AssertionError after `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"{description}: not within {deadline_s:g} s"
        time.sleep(POLL_S)


def wait_until_committed(member: PushConsumer, count: int) -> None:
    """Wait until a member has committed that it has consumed this many messages, from the beginning of all queues.

    The offset of a message counts only after its handler has returned.
    """

    def has_committed() -> bool:
        member.commit()
        return sum(member.committed(queue) or 0 for queue in member.assignment) >= count

    wait_until(has_committed, f"the member has committed {count} messages")


def routes(namesrv_port: int, topic: str, tls: ssl.SSLContext | None) -> bool:
    try:
        with RawClient(LOOPBACK, namesrv_port, tls=tls) as client:
            return has_route(client, topic)
    except ConnectionError:
        return False


def has_route(name_server: RawClient, topic: str) -> bool:
    return name_server.call(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == OK


def expect(code: int, response: RawResponse) -> None:
    assert response.code == code, f"code {response.code}: {response.remark}"


def parse_records(data: bytes) -> Iterator[StoredMessage]:
    """Parse consecutive records, independently of `protocol`. Source: docs/reference/disk.md, "CommitLog record"."""
    while data:
        size, _magic, _crc, _queue, _flag, _offset, _position, sys_flag = RECORD_HEAD.unpack_from(data)
        body_end = BODY_AT + int.from_bytes(data[BODY_AT - 4 : BODY_AT], "big")
        properties_at = body_end + 1 + data[body_end] + 2
        pairs = data[properties_at:size].decode().removesuffix("\x02").split("\x02")
        yield StoredMessage(sys_flag, data[BODY_AT:body_end], dict(pair.split("\x01", 1) for pair in pairs))
        data = data[size:]


def broker_ports() -> tuple[int, int]:
    """Return free ports for the name server and the broker.

    The ports that RocketMQ's broker also opens (its port - 2 and + 1) are free, too.
    """
    namesrv_port, broker_port = free_ports(2, beside=(-2, 1))
    return namesrv_port, broker_port
