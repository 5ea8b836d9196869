"""A replicated group of one broker of RocketMQ and one of Skylark: mixed messages, kills, and equal copies.

    python -m tests.interop.replication --messages 100000 --kills 10 --results docs/benchmarks/replication_interop.csv
    python -m tests.interop.replication --version 5.3.3 --role slave --messages 2000 --kills 1 --seeds 7-9

`--role` is that of Skylark's broker. Messages of all kinds go to the master, while both brokers are killed and started
again. Then the log and the queue units of both stores are equal, `store verify` finds no damage in ours, and the copy
starts as the master: a client of RocketMQ reads every message from it, also those whose delay, timer or transaction
was open when the master died.

Each version, role and seed is one group. A repeated command skips those that the results file has as equal, so a long
command can be completed in several sessions. Exit code 1 if a group differs.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.protocol.codes import RequestCode
from tests.harness import results
from tests.interop.brokers import APACHE_VERSIONS, log_file, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.replication_load import PLAIN, QUEUES, TIMED, Expected, Sender, with_faults
from tests.interop.replication_nodes import Group, Node
from tests.interop.replication_stores import compare

ROLES: Final = ("slave", "master")
MASTER_ROLES: Final = ("SYNC_MASTER", "ASYNC_MASTER")
READERS: Final = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}
GROUP: Final = "repl-readers"
COMMITTED: Final = 7
PENDING: Final = 10
"""Messages of each kind that are open when the master dies."""
LEVEL_5_S: Final = 2
TIMER_S: Final = 5
READ_DEADLINE_S: Final = 3_000
EQUAL: Final = "equal"
COLUMNS: Final = (
    "date", "commit", "rocketmq", "role", "master_role", "seed", "messages", "kills", "crashes",
    "log_mb", "read", "seconds", "result",
)  # fmt: skip
"""Columns of the results. `role` is Skylark's; `kills` of each side; `crashes` of the master, by itself; `read`:
messages that a client read from the copy."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One group, and what it goes through. `version` is RocketMQ's, `role` Skylark's, `kills` those of each side."""

    version: str
    role: str
    messages: int
    kills: int
    seed: int = 0
    master_role: str = MASTER_ROLES[0]

    def __str__(self) -> str:
        return f"RocketMQ {self.version}, Skylark as {self.role}, seed {self.seed}"


class Counts(msgspec.Struct):
    """What a group did so far. `seconds` include everything."""

    begun: float = msgspec.field(default_factory=time.monotonic)
    log_bytes: int = 0
    crashes: int = 0
    read: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def __str__(self) -> str:
        log = f"log of {self.log_bytes / 1e6:.1f} MB and queue units equal"
        return f"{log}, {self.read:,} messages read from the copy, {self.crashes} crashes, {self.seconds:.0f} s"


def run(home: Path, load: Load, counts: Counts | None = None, report: Callable[[str], None] = lambda _: None) -> Counts:
    """Run one group with its state below `home`. `report` gets a line after each kill; `counts` also grow in a run that
    fails. Raises AssertionError if anything differs."""
    counts = counts or Counts()
    CLIENTS[READERS[load.version]].command(home)  # build the driver, or skip, before anything starts
    group = Group(home, load.version, load.role, master_role=load.master_role)
    try:
        group.start()
        sender = Sender(group.master, has_timers=load.version.startswith("5"), seed=load.seed)
        for topic, queues in QUEUES.items():
            sender.create_topic(topic, queues)
        sender.short_topic()

        def progress(count: int, done: int) -> None:
            counts.crashes = group.crashes
            faults = f"{done} of {2 * load.kills} kills, {counts.crashes} crashes"
            report(f"{load}: {count:,} of {load.messages:,} messages, {faults}, {counts.seconds:.0f} s")

        send(group, sender, load, progress)
        counts.log_bytes = settle(group, sender)
        counts.crashes = group.crashes
        master, slave = group.master.home / "store", group.slave.home / "store"
        compare(master, slave, master if load.role == "master" else slave, counts.log_bytes)
        report(f"{load}: log and queue units equal, {counts.seconds:.0f} s")
        counts.read = take_over(group, sender)
    finally:
        group.close()
    return counts


@contextmanager
def short_runs(home: Path, role: str) -> Iterator[dict[str, Future[Counts]]]:
    """Run a short group with each version of RocketMQ, all at a time, because they mostly wait for fixed times. `role`
    is Skylark's."""
    with ThreadPoolExecutor() as threads:
        futures = {}
        for version in APACHE_VERSIONS:
            (own := home / version).mkdir()
            load = Load(version=version, role=role, messages=300, kills=1)
            futures[version] = threads.submit(run, own, load)
        yield futures


def send(group: Group, sender: Sender, load: Load, progress: Callable[[int, int], None]) -> None:
    """Send messages while each side is killed, or stopped, this many times."""

    def restart_master(is_kill: bool) -> None:
        (group.master.kill if is_kill else group.master.stop)()
        group.start_master()

    def restart_slave(is_kill: bool) -> None:
        (group.slave.kill if is_kill else group.slave.stop)()
        group.start_slave()

    chance = random.Random(load.seed)
    faults = [partial(restart, i % 3 != 2) for i in range(load.kills) for restart in (restart_master, restart_slave)]
    chance.shuffle(faults)
    with_faults(sender.run(load.messages), load.messages, faults, chance, progress)


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
    received = list(read(group, topics, expected))
    wrong = expected.differences(received)
    assert not wrong, f"{len(wrong)} messages: {wrong[:10]}"
    return len(received)


def read(group: Group, topics: list[str], expected: Expected) -> Iterator[tuple[str, str, bytes]]:
    """Yield (name, topic, body) of all messages that a client of RocketMQ receives."""
    (homes := group.home / "reader").mkdir()
    drivers = DriverGroup(homes, log_file(group.slave.home))
    try:
        command = CLIENTS[READERS[group.version]].command
        arguments = ("consume", group.namesrv, ",".join(topics), GROUP)
        driver = drivers.start("reader", command, *arguments, deadline_s=READ_DEADLINE_S)
        wanted = expected.stored.keys()
        try:
            drivers.wait_for_messages(set(wanted), READ_DEADLINE_S)
        except AssertionError as error:
            missing = sorted(wanted - {delivery.message.n for delivery in drivers.deliveries})
            raise AssertionError(f"{len(missing)} messages are missing: {missing[:10]}") from error
        driver.leave()
        drivers.wait_until(lambda: "reader" in drivers.left, "the reader has left")
    finally:
        drivers.stop()
    for delivery in drivers.deliveries:
        yield delivery.message.n, delivery.message.topic, delivery.message.body


# ------------------------------------------------------------------------------------------------------------ command


def main() -> int:
    """Run the groups that the results file lacks. Returns the exit code."""
    options = parsed_options()
    todo = [load for load in loads(options) if options.results is None or not is_done(load, options.results)]
    home = options.keep or Path(tempfile.mkdtemp(prefix="replication-"))
    try:
        failed = [load for load in todo if not recorded_run(home, load, options.results)]
    finally:
        if options.keep is None:
            shutil.rmtree(home)
    print(f"{len(todo)} groups, {len(failed)} failed")
    return 1 if failed else 0


def recorded_run(home: Path, load: Load, file: Path | None) -> bool:
    """Run one group, print its outcome and append it to the results. Returns whether its copies were equal."""
    counts, result = Counts(), EQUAL
    try:
        (own := home / f"{load.version}-{load.role}-{load.seed}").mkdir(parents=True)
        run(own, load, counts, lambda line: print(line, file=sys.stderr, flush=True))
    except Exception as error:  # noqa: BLE001 - the result of the group; the next one runs
        traceback.print_exc()
        result = (str(error).splitlines() or [type(error).__name__])[0]
    print(f"{load}: {counts if result == EQUAL else result}", flush=True)
    if file is not None:
        figures = counts.crashes, f"{counts.log_bytes / 1e6:.1f}", counts.read, f"{counts.seconds:.0f}", result
        results.append(file, COLUMNS, (results.today(), results.commit(), *identity(load), *figures))
    return result == EQUAL


def is_done(load: Load, file: Path) -> bool:
    """Return whether the results file has this group as equal."""
    key = [str(value) for value in identity(load)]
    names = COLUMNS[2 : 2 + len(key)]
    return any([row[name] for name in names] == key and row["result"] == EQUAL for row in results.rows_of(file))


def identity(load: Load) -> tuple[object, ...]:
    return load.version, load.role, load.master_role, load.seed, load.messages, load.kills


def loads(options: argparse.Namespace) -> Iterator[Load]:
    for version in options.version:
        for role in options.role:
            for seed in options.seeds:
                yield Load(
                    version=version,
                    role=role,
                    messages=options.messages,
                    kills=options.kills,
                    seed=seed,
                    master_role=options.master_role,
                )


def parsed_options() -> argparse.Namespace:
    description, _, rest = (__doc__ or "").partition("\n\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, epilog=rest, formatter_class=form)
    parser.add_argument("--version", nargs="+", choices=APACHE_VERSIONS, default=APACHE_VERSIONS, help="of RocketMQ")
    parser.add_argument("--role", nargs="+", choices=ROLES, default=ROLES, help="of Skylark")
    parser.add_argument("--master-role", choices=MASTER_ROLES, default=MASTER_ROLES[0])
    parser.add_argument("--messages", type=int, default=2_000, help="of each group (default 2,000)")
    parser.add_argument("--kills", type=int, default=1, help="of each side (default 1)")
    parser.add_argument("--seeds", type=seeds, default=range(1), metavar="A-B", help="the first and the last seed")
    parser.add_argument("--results", type=Path, metavar="FILE", help="CSV file to which each group appends a line")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep stores and logs in this directory")
    options = parser.parse_args()
    if options.messages < 1:
        parser.error("--messages must be at least 1")
    if options.kills < 0:
        parser.error("--kills must not be negative")
    return options


def seeds(text: str) -> range:
    """Parse `A` or `A-B`. Raises ValueError."""
    first, _, last = text.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise ValueError(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
