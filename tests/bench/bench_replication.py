"""Replication: the cost of copies for the leader, the wait of a lone producer, the rate of a follower that catches up.

    python -m tests.bench.bench_replication                          # all parts, by the link, 5 rounds of 2 s
    python -m tests.bench.bench_replication --by classic             # followers are SLAVEs, as in RocketMQ
    python -m tests.bench.bench_replication --part cpu --rounds 12   # one part; may be repeated
    python -m tests.bench.bench_replication --part cpu --rate 15000  # the same rate of sends for both leaders

    cpu        CPU of the leader per send with two followers, in relation to a broker without any
    single     p50 of a producer with one message in flight: two followers, beside a broker alone; printed besides:
               the p50 of a producer that sends each message to three brokers itself, and waits for all
    catch-up   MB/s of a new follower, from its first to its last byte, of a log of `--gib`
    rocketmq   sends per second with one follower, in relation to RocketMQ 5.3.3 as a SYNC_MASTER with one slave

All brokers use SYNC_FLUSH. Those of a part run at the same time on this machine, and the leaders are measured
alternately. Bodies have 100 B and 1 KiB. CPU is user and system time of the leader's process; rates are those of a
machine that also runs the followers. Printed: the medians of the rounds, of their ratios, and whether the budget holds.
The part `rocketmq` needs java and mvn.

The budgets of the part `cpu` are for full speed, where both leaders write equally many sends at once. With `--rate`
both get the same sends per second, and each writes as many at once as have arrived since it waited last.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from skylarkmq.clients.mqbench.clusters import create_topics
from skylarkmq.clients.mqbench.runs import fill, produce, send_one_at_a_time
from skylarkmq.clients.mqbench.workloads import Workload
from tests.bench.peers.by_hand import p50_by_hand_us
from tests.bench.peers.groups import ALONE, CLASSIC, LINK, Group, started_group
from tests.bench.peers.loads import Bench, Length, Sample, measured
from tests.bench.peers.started import NEWER

SIZES: Final = {100: 1.25, 1024: 1.5}
"""Body size -> limit of the leader's CPU with two followers, in relation to none."""
FOLLOWERS: Final = 2
CATCH_UP_MB_PER_S: Final = 200.0
ROCKETMQ_RATIO: Final = 2.0
WAIT_RATIO, WAIT_MORE_US = 2.0, 100.0
BACKLOG_BODY: Final = 16 << 10
LOOK_S: Final = 0.05
WARM_S: Final = {NEWER: 10.0}
WARM_OURS_S: Final = 1.0

Pairs = list[tuple[Sample, Sample]]


class Options(msgspec.Struct, frozen=True):
    """What to measure, and how long."""

    kind: str
    rounds: int
    length: Length
    gib: float
    rate: float | None
    directory: Path


def main() -> int:
    """Run the parts; the exit code is 1 if a budget does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=(LINK, CLASSIC), default=LINK, help="kind of replication (default: link)")
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="only this part; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--gib", type=float, default=2.0, help="bytes of log that a new follower copies")
    parser.add_argument("--rate", type=float, help="sends per second of the part cpu (default: full speed)")
    parser.add_argument("--directory", type=Path, help="directory of the temporary stores")
    given = parser.parse_args()
    holds = True
    for name in given.part or PARTS:
        with tempfile.TemporaryDirectory(prefix="bench-replication-", dir=given.directory) as directory:
            options = Options(given.by, given.rounds, Length(given.seconds), given.gib, given.rate, Path(directory))
            holds = PARTS[name](options) and holds
    return 0 if holds else 1


def cpu(options: Options) -> bool:
    """Print the leader's CPU per send with two followers and with none."""
    holds = True
    with pair(options, ALONE, FOLLOWERS) as (alone, leading):
        for size, limit in SIZES.items():
            workload = Workload(topic=f"cpu-{size}", size=size, rate=options.rate)
            pairs = alternated(options, alone, leading, workload)
            ratio = median(two["cpu_us"] / none["cpu_us"] for none, two in pairs)
            none_us, two_us = middle(pairs, "cpu_us")
            line = f"{none_us:.2f} us, with {FOLLOWERS} followers {two_us:.2f} us, ratio {ratio:.2f}"
            holds = report(f"CPU of a send of {size} B", line, f"<= {limit:g}", ratio <= limit) and holds
    return holds


def single(options: Options) -> bool:
    """Print the p50 of one message in flight, with two followers and with none."""
    workload = Workload(topic="single", connections=1, in_flight=1)
    with pair(options, ALONE, FOLLOWERS) as (alone, leading):
        none_us, two_us = middle(alternated(options, alone, leading, workload), "p50_us")
    limit_us = WAIT_RATIO * none_us + WAIT_MORE_US
    line = f"p50 {none_us:.0f} us, with {FOLLOWERS} followers {two_us:.0f} us; by hand {by_hand_us(options):.0f} us"
    return report("one message in flight", line, f"<= {limit_us:.0f} us", two_us <= limit_us)


def by_hand_us(options: Options) -> float:
    """Return the p50 of a producer that sends each message to as many brokers as a group has, without replication."""
    workload = Workload(topic="by-hand", seconds=options.length.seconds, warmup_s=WARM_OURS_S)
    with ExitStack() as stack:
        brokers = []
        for number in range(1 + FOLLOWERS):
            directory = options.directory / f"by-hand-{number}"
            directory.mkdir()
            brokers.append(stack.enter_context(started_group(ALONE, directory)).leader.broker)
        for broker in brokers:
            create_topics([broker], workload)
        return median(p50_by_hand_us(workload, brokers) for _ in range(options.rounds))


def catch_up(options: Options) -> bool:
    """Print the rate at which a new follower copies the leader's log, while the leader has nothing else to do."""
    messages = int(options.gib * (1 << 30)) // BACKLOG_BODY
    workload = Workload(topic="backlog", size=BACKLOG_BODY, in_flight=16, backlog=messages)
    with started_group(options.kind, options.directory, later=1) as group:
        brokers = [group.leader.broker]
        create_topics(brokers, workload)
        fill(workload, brokers)
        end = group.end(0)
        with group.member(1):
            both = [group.process(number) for number in (0, 1)]
            begun_s, first, before = time.monotonic(), group.end(1), [one.cpu_s() for one in both]
            while (copied := group.end(1)) < end:
                if not first and copied:
                    begun_s, first, before = time.monotonic(), copied, [one.cpu_s() for one in both]
                time.sleep(LOOK_S)
            took_s = time.monotonic() - begun_s
            leader_s, follower_s = (one.cpu_s() - cpu_s for one, cpu_s in zip(both, before, strict=True))
    size_mb = (copied - first) / 1e6
    rate = size_mb / took_s
    line = f"{size_mb:.0f} MB at {rate:.0f} MB/s; CPU of leader {leader_s:.2f} s, of follower {follower_s:.2f} s"
    return report("catch-up", line, f">= {CATCH_UP_MB_PER_S:g} MB/s", rate >= CATCH_UP_MB_PER_S)


def rocketmq(options: Options) -> bool:
    """Print sends per second with one follower, of RocketMQ's group and of ours."""
    holds = True
    with pair(options, NEWER, 1) as (theirs, ours):
        for size in SIZES:
            pairs = alternated(options, theirs, ours, Workload(topic=f"rate-{size}", size=size))
            ratio = median(mine["rate"] / other["rate"] for other, mine in pairs)
            other_rate, mine_rate = middle(pairs, "rate")
            line = f"{mine_rate:.0f}/s, RocketMQ 5.3.3 {other_rate:.0f}/s, ratio {ratio:.2f}"
            holds = report(f"sends of {size} B", line, f">= {ROCKETMQ_RATIO:g}", ratio >= ROCKETMQ_RATIO) and holds
    return holds


PARTS: Final[dict[str, Callable[[Options], bool]]] = {
    "cpu": cpu,
    "single": single,
    "catch-up": catch_up,
    "rocketmq": rocketmq,
}


@contextmanager
def pair(options: Options, other: str, followers: int) -> Iterator[tuple[Group, Group]]:
    """Start the other group and ours; one of RocketMQ has as many followers as ours."""
    theirs = 0 if other == ALONE else followers
    with (
        started_group(other, options.directory, theirs) as first,
        started_group(options.kind, options.directory, followers) as second,
    ):
        yield first, second


def alternated(options: Options, first: Group, second: Group, workload: Workload) -> Pairs:
    """Return the samples of both leaders, round by round, after a warm-up of each."""
    workload = msgspec.structs.replace(workload, seconds=options.length.seconds, warmup_s=options.length.warmup_s)
    for group in (first, second):
        create_topics([group.leader.broker], workload)
        sample(options, group, msgspec.structs.replace(workload, seconds=WARM_S.get(group.kind, WARM_OURS_S)))
    samples: Pairs = []
    for number in range(options.rounds):
        order = (first, second) if number % 2 else (second, first)
        taken = {group.kind: sample(options, group, workload) for group in order}
        samples.append((taken[first.kind], taken[second.kind]))
    return samples


def sample(options: Options, group: Group, workload: Workload) -> Sample:
    """Measure one leader. `measured` prints how many sends were not acknowledged with code 0."""
    bench = Bench(group.leader, options.length, options.directory)
    broker = bench.broker.broker
    if workload.in_flight == 1:
        return measured(bench, lambda edge: send_one_at_a_time(workload, broker, at_edge=edge))
    return measured(bench, lambda edge: produce(workload, [broker], at_edge=edge))


def middle(pairs: Pairs, figure: str) -> tuple[float, float]:
    """Return the medians of a figure, of the first and of the second group."""
    return median(first[figure] for first, _ in pairs), median(second[figure] for _, second in pairs)


def report(title: str, line: str, budget: str, holds: bool) -> bool:
    """Print a figure beside its budget; return whether it holds."""
    print(f"{title:24} {line:72} budget {budget}: {'holds' if holds else 'EXCEEDED'}", flush=True)
    return holds


if __name__ == "__main__":
    sys.exit(main())
