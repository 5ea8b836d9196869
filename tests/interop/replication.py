"""A replicated group of one broker of RocketMQ and one of Skylark: mixed messages, kills, and equal copies.

    python -m tests.interop.replication --version 5.3.3 --messages 100000 --kills 10 --role slave

`--role` is that of Skylark's broker. Messages of all kinds go to the master, while both brokers are killed and started
again. Then the log and the queue units of both stores are equal, `store verify` finds no damage in ours, and the copy
starts as the master: a client of RocketMQ reads every message from it, also those whose delay, timer or transaction
was open when the master died.
"""

import argparse
import random
import shutil
import struct
import tempfile
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode, is_reserved_topic
from tests.harness.store_check import assert_consistent
from tests.harness.stores import config_of
from tests.interop.brokers import APACHE_VERSIONS, log_file, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.replication_load import PLAIN, QUEUES, TIMED, Expected, Sender, with_faults
from tests.interop.replication_nodes import SIZES, Group, Node

READERS: Final = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}
GROUP: Final = "repl-readers"
COMMITTED: Final = 7
UNIT: Final = struct.Struct(">qiq")
FILLER: Final = 0x7FFFFFFF
MAX_TAGS_HASH: Final = 2**31 - 1
SHORT_TOPICS: Final = 3
PENDING: Final = 10
"""Messages of each kind that are open when the master dies."""
LEVEL_5_S: Final = 2
TIMER_S: Final = 5
MANY: Final = 10_000
"""Messages that two clients read in turn, because each one ends after some minutes."""
READ_DEADLINE_S: Final = 220.0
QUEUE_FILE_BYTES: Final = SIZES["mappedFileSizeConsumeQueue"]


def run(
    home: Path,
    version: str,
    role: str,
    messages: int,
    kills: int,
    seed: int = 0,
    master_role: str = "SYNC_MASTER",
) -> list[str]:
    """Run one group. Returns lines for a report; raises AssertionError if anything differs."""
    CLIENTS[READERS[version]].command(home)  # build the driver, or skip, before anything starts
    begun = time.monotonic()
    group = Group(home, version, role, master_role=master_role)
    lines = []
    try:
        group.start()
        sender = Sender(group.master, has_timers=version.startswith("5"), seed=seed)
        create_topics(sender)
        send(group, sender, messages, kills, seed)
        sent_s = time.monotonic() - begun
        end = settle(group, sender)
        compare(group, end)
        lines.append(
            f"{version} {role}: {messages} messages, {kills} kills of each side in {sent_s:.0f} s; {end} bytes"
        )
        received = take_over(group, sender)
        lines.append(f"{version} {role}: logs and queue units equal; {received} messages read from the copy")
    finally:
        group.close()
    return lines


def create_topics(sender: Sender) -> None:
    for topic, queues in QUEUES.items():
        sender.create_topic(topic, queues)


def send(group: Group, sender: Sender, messages: int, kills: int, seed: int) -> None:
    """Send messages while each side is killed, or stopped, this many times."""

    def restart_master(is_kill: bool) -> None:
        (group.master.kill if is_kill else group.master.stop)()
        group.start_master()

    def restart_slave(is_kill: bool) -> None:
        (group.slave.kill if is_kill else group.slave.stop)()
        group.start_slave()

    chance = random.Random(seed)
    faults = [(restart, i % 3 != 2) for i in range(kills) for restart in (restart_master, restart_slave)]
    chance.shuffle(faults)
    with_faults(sender.run(messages), messages, [lambda f=f: f[0](f[1]) for f in faults], chance)  # type: ignore[misc]


def settle(group: Group, sender: Sender) -> int:
    """Wait for equal logs and tables, leave messages of each kind open, and kill the master. Returns the log's end.

    Our own master is stopped instead: a killed one has the last queue units only in memory.
    """
    commit_offset(group.master)
    group.wait_equal()
    wait_until(lambda: offsets_of(group.slave) == COMMITTED, "the slave has the committed offset")
    for _ in range(PENDING):
        sender.delayed(LEVEL_5_S)
        if group.version.startswith("5"):
            sender.timed(TIMER_S)
        sender.half()
    sender.close()
    end = group.wait_equal()
    (group.master.stop if group.ours == "master" else group.master.kill)()
    group.slave.stop()
    return end


def commit_offset(node: Node) -> None:
    """Commit an offset of a group that exists on the master only."""
    body = b'{"groupName":"repl-committed","consumeEnable":true}'
    assert node.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    ext = {"consumerGroup": "repl-committed", "topic": PLAIN, "queueId": 0, "commitOffset": COMMITTED}
    assert node.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def offsets_of(node: Node) -> int | None:
    """Return the offset of that group."""
    ext = {"consumerGroup": "repl-committed", "topic": PLAIN, "queueId": 0}
    response = node.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int(response.ext["offset"]) if response.code == 0 else None


# ------------------------------------------------------------------------------------------------------------- stores


def compare(group: Group, end: int) -> None:
    """Raise AssertionError if log or queues differ, or ours is damaged."""
    master, slave = group.master.home / "store", group.slave.home / "store"
    compare_logs(master, slave, end)
    ours = master if group.ours == "master" else slave
    topics = TopicConfigSerializeWrapper.decode((ours / "config" / "topics.json").read_bytes()).topic_config_table
    units, other = dict(queue_units(master, topics)), dict(queue_units(slave, topics))
    assert units.keys() == other.keys(), units.keys() ^ other.keys()
    for queue, expected in units.items():
        offsets = expected.keys() | other[queue].keys()
        different = [at for at in offsets if differ(expected.get(at), other[queue].get(at))]
        assert not different, f"{queue}: {len(different)} units differ, first {min(different)}"
    assert_consistent(ours, store_config(ours), may_begin_again=True)


def differ(unit: bytes | None, other: bytes | None) -> bool:
    """Return whether two units differ.

    RocketMQ 4.9 recovers after a kill before it has parsed its delay levels. So units of delayed messages that it
    restores then have the hash of the tag in place of the delivery time, and those messages are delivered at once.
    """
    if unit == other or unit is None or other is None:
        return unit != other
    a, b = UNIT.unpack(unit), UNIT.unpack(other)
    return a[:2] != b[:2] or min(a[2], b[2]) > MAX_TAGS_HASH or max(a[2], b[2]) <= MAX_TAGS_HASH


def compare_logs(master: Path, slave: Path, end: int) -> None:
    """Raise AssertionError unless both logs have the same bytes from the copy's begin to `end`."""
    size = SIZES["mappedFileSizeCommitLog"]
    for copy in sorted((slave / "commitlog").iterdir()):
        begin = int(copy.name)
        count = min(max(end - begin, 0), size)
        original = (master / "commitlog" / copy.name).read_bytes()[:count]
        assert original == copy.read_bytes()[:count], f"{copy.name} differs"


def queue_units(root: Path, topics: Container[str]) -> Iterator[tuple[tuple[str, int], dict[int, bytes]]]:
    """Yield the units of each queue that has any, by offset; only of RocketMQ's own topics and of `topics`.

    A start of RocketMQ after a kill makes the queues of deleted topics again, from the log."""
    for topic in sorted((root / "consumequeue").iterdir()):
        for queue in topic.iterdir() if topic.name in topics or is_reserved_topic(topic.name) else ():
            units = dict(units_of(queue))
            if units:
                yield (topic.name, int(queue.name)), units


def units_of(queue: Path) -> Iterator[tuple[int, bytes]]:
    for file in sorted(queue.iterdir()):
        data = file.read_bytes()
        for at in range(0, len(data) - UNIT.size + 1, UNIT.size):
            _, size, _ = UNIT.unpack_from(data, at)
            if 0 < size < FILLER:
                yield (int(file.name) + at) // UNIT.size, data[at : at + UNIT.size]


def store_config(root: Path) -> StoreConfig:
    """Return the settings that open such a store."""
    return config_of(
        root,
        mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
        max_hash_slot_num=SIZES["maxHashSlotNum"],
        max_index_num=SIZES["maxIndexNum"],
    )


# ---------------------------------------------------------------------------------------------------------- take-over


def take_over(group: Group, sender: Sender) -> int:
    """Start the copy as the master; a client of RocketMQ reads everything. Returns the number of messages."""
    expected = sender.expected
    copy = group.slave = group.copy_as_master()
    copy.start()
    wait_until(lambda: copy.responds(RequestCode.GET_BROKER_RUNTIME_INFO), "the copy as the master")
    assert offsets_of(copy) == COMMITTED
    for half in list(expected.open):
        sender.end(half, commit=True, at=copy)
    topics = [topic for topic in QUEUES if topic != TIMED or group.version.startswith("5")]
    parts = [topics] if len(expected.stored) < MANY else [[PLAIN], [topic for topic in topics if topic != PLAIN]]
    received = [message for part in parts for message in read(group, part, expected)]
    assert expected.differences(received) == []
    return len(received)


def read(group: Group, topics: list[str], expected: Expected) -> Iterator[tuple[str, str, bytes]]:
    """Yield (name, topic, body) of all messages that a client of RocketMQ receives."""
    (homes := group.home / f"reader-{topics[0]}").mkdir()
    drivers = DriverGroup(homes, log_file(group.slave.home))
    try:
        command = CLIENTS[READERS[group.version]].command
        driver = drivers.start("reader", command, "consume", group.namesrv, ",".join(topics), f"{GROUP}-{topics[0]}")
        wanted = {n for n, (topic, _) in expected.stored.items() if topic in topics}
        try:
            drivers.wait_for_messages(wanted, READ_DEADLINE_S)
        except AssertionError as error:
            missing = sorted(wanted - {delivery.message.n for delivery in drivers.deliveries})
            raise AssertionError(f"{len(missing)} messages are missing: {missing[:10]}") from error
        driver.leave()
        drivers.wait_until(lambda: "reader" in drivers.left, "the reader has left")
    finally:
        drivers.stop()
    for delivery in drivers.deliveries:
        yield delivery.message.n, delivery.message.topic, delivery.message.body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--version", choices=APACHE_VERSIONS, default=APACHE_VERSIONS[-1])
    parser.add_argument("--role", choices=("master", "slave"), default="slave", help="of Skylark")
    parser.add_argument("--master-role", choices=("ASYNC_MASTER", "SYNC_MASTER"), default="SYNC_MASTER")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=1, help="of each side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="an empty directory for stores and logs, which is kept")
    args = parser.parse_args()
    home = args.keep or Path(tempfile.mkdtemp(prefix="replication-"))
    home.mkdir(parents=True, exist_ok=True)
    try:
        for line in run(home, args.version, args.role, args.messages, args.kills, args.seed, args.master_role):
            print(line, flush=True)
    finally:
        if args.keep is None:
            shutil.rmtree(home)


if __name__ == "__main__":
    main()
