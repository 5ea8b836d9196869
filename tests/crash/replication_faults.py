"""Faults of a follower under load: nothing acknowledged is lost, or acknowledged by too few synced copies.

    python -m tests.crash.replication_faults                          every fault for 60 s, with two and three copies
    python -m tests.crash.replication_faults --fault disk-full --minimum 2 --seconds 20
    python -m tests.crash.replication_faults --results docs/benchmarks/replication_faults.csv

A leader and two followers run as processes (tests/crash/supervised_group.py), and producers of the SDK send all the
time. With `minInSyncReplicas=2` sends go on during each fault of one follower; with 3 they are refused until the
follower is back. Then all nodes stop, and their disks are examined (tests/crash/copies_proof.py).

    killed           kill -9, again and again, and each time a new start after the supervisor's pause
    down             kill -9, and no new start until the fault ends
    paused           SIGSTOP
    disk-full        no byte is free on the follower's disk
    sync-slow        each sync takes 3 s longer
    sync-failing     each sync returns EIO
    log-sync-failing the same, of the log only
    cut-to-follower  the leader's bytes do not reach the follower; connections stay open
    cut-to-leader    the other direction

A fault is a finding if messages were lost, if logs differ, if no message was acknowledged for longer than 2 s although
`minInSyncReplicas` allows it, if fewer copies than that did not end in SERVICE_NOT_AVAILABLE (14), if the follower does
not come back by itself, or by what its last line asks for, or if a node prints a traceback.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import uvloop

from skylarkmq.protocol.codes import ResponseCode
from tests.crash.acknowledged_sends import PAUSE_S, Load
from tests.crash.copies_proof import findings
from tests.crash.supervised_group import SupervisedGroup
from tests.crash.supervised_node import SupervisedNode
from tests.harness import results
from tests.harness.observed_disk import build_library, can_observe
from tests.harness.one_way_proxy import Direction

SECONDS: Final = 60.0
RESTART_S: Final = 2.0
"""RestartSec of deploy/systemd."""
PAUSE_LIMIT_S: Final = 2.0
BACK_LIMIT_S: Final = 120.0
SYNC_S: Final = 3.0
KILL_INTERVAL_S: Final = 5.0
FILL_INTERVAL_S: Final = 0.1
REFUSED_POLL_S: Final = 0.1
REFUSED: Final = str(int(ResponseCode.SERVICE_NOT_AVAILABLE))
SURVIVED: Final = 2
"""`minInSyncReplicas` with which one follower of two may fail."""
STRICT: Final = 3
COLUMNS: Final = (
    "date", "commit", "fault", "min", "seconds", "acknowledged", "refused_14", "other_errors", "longest_pause_s",
    "back_s", "exit_codes", "load_average", "findings",
)  # fmt: skip


async def killed(node: SupervisedNode, over: asyncio.Event) -> None:
    """Kill the process again and again."""
    while not over.is_set():
        node.kill()
        await over_within(over, KILL_INTERVAL_S)


async def down(node: SupervisedNode, over: asyncio.Event) -> None:
    """Kill the process, and start it after the fault."""
    node.hold_down()
    node.kill()
    await over.wait()
    node.let_run()


async def paused(node: SupervisedNode, over: asyncio.Event) -> None:
    """Pause the process."""
    node.pause()
    await over.wait()
    node.resume()


async def disk_full(node: SupervisedNode, over: asyncio.Event) -> None:
    """Take all space, also what the node frees."""
    assert node.small_disk is not None
    while not over.is_set():
        node.small_disk.fill()
        await over_within(over, FILL_INTERVAL_S)
    node.small_disk.free()


async def sync_slow(node: SupervisedNode, over: asyncio.Event) -> None:
    """Slow each sync down."""
    node.disk.slow(SYNC_S)
    await over.wait()
    node.disk.heal()


async def sync_failing(node: SupervisedNode, over: asyncio.Event) -> None:
    """Let each sync fail."""
    node.disk.fail()
    await over.wait()
    node.disk.heal()


async def log_sync_failing(node: SupervisedNode, over: asyncio.Event) -> None:
    """Let each sync of the log fail."""
    node.disk.fail_log()
    await over.wait()
    node.disk.heal()


async def cut_to_follower(node: SupervisedNode, over: asyncio.Event) -> None:
    """Cut the direction of the log."""
    node.proxy.cut(Direction.TO_CLIENT)
    await over.wait()
    node.proxy.heal()


async def cut_to_leader(node: SupervisedNode, over: asyncio.Event) -> None:
    """Cut the direction of the acknowledgements."""
    node.proxy.cut(Direction.TO_TARGET)
    await over.wait()
    node.proxy.heal()


async def over_within(over: asyncio.Event, seconds: float) -> None:
    """Wait until the fault is over, or for this time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)


FAULTS: Final[Mapping[str, Callable[[SupervisedNode, asyncio.Event], Awaitable[None]]]] = {
    "killed": killed,
    "down": down,
    "paused": paused,
    "disk-full": disk_full,
    "sync-slow": sync_slow,
    "sync-failing": sync_failing,
    "log-sync-failing": log_sync_failing,
    "cut-to-follower": cut_to_follower,
    "cut-to-leader": cut_to_leader,
}
TRACEBACK: Final = "Traceback (most recent call last)"
ON_A_SMALL_DISK: Final = "disk-full"


class Plan(msgspec.Struct, frozen=True):
    """Faults of one group, in turn on its followers, `seconds` each. `pause_s`: of a sender, after each response."""

    faults: Sequence[str]
    minimum: int
    seconds: float = SECONDS
    restart_s: float = RESTART_S
    pause_s: float = PAUSE_S

    @property
    def disk_bytes(self) -> int:
        """Return the size of a follower's disk that can be filled."""
        seconds = self.seconds * len(self.faults)
        return (64 << 20) + int(seconds * (2 << 20)) if ON_A_SMALL_DISK in self.faults else 0


class Figures(NamedTuple):
    """What one fault did. Messages and errors: those while it lasted. The pause: also until the follower is back."""

    fault: str
    acknowledged: int
    refused: int
    other_errors: Mapping[str, int]
    longest_pause_s: float
    back_s: float
    exits: Sequence[int]
    asked: str

    def __str__(self) -> str:
        line = f"{self.fault:17} {self.acknowledged} acknowledged, {self.refused} refused with {REFUSED}, "
        line += f"other errors {dict(self.other_errors)}, longest pause {self.longest_pause_s:.2f} s, "
        line += f"back after {self.back_s:.1f} s, exit codes {list(self.exits)}"
        return f"{line}; asked: {self.asked}" if self.asked else line


class Outcome(msgspec.Struct):
    """The figures of each fault, and what is wrong. `skipped`: why the plan cannot run here."""

    figures: list[Figures] = []
    findings: list[str] = []
    skipped: str = ""


async def run(plan: Plan, directory: Path, library: Path) -> Outcome:
    """Run one group. Its stores and logs stay in `directory`."""
    outcome = Outcome()
    async with SupervisedGroup(
        directory, plan.minimum, library, disk_bytes=plan.disk_bytes, restart_s=plan.restart_s
    ) as group:
        if problem := group.mount_disks():
            outcome.skipped = problem
            return outcome
        await group.start()
        load = Load(group.namesrv, plan.pause_s)
        await load.start()
        for number, fault in enumerate(plan.faults):
            victim = group.followers[number % len(group.followers)]
            is_last = number + 1 == len(plan.faults)
            outcome.figures.append(await disturb(group, load, victim, fault, plan, outcome.findings, is_last=is_last))
        await load.stop()
        if all(node.is_back for node in group.nodes) and (problem := await group.wait(group.all_equal, BACK_LIMIT_S)):
            outcome.findings.append(f"bytes without an acknowledgement were not copied: {problem}")
        outcome.findings += await group.stop()
        outcome.findings += [f"{node.name} printed a traceback" for node in group.nodes if TRACEBACK in node.output]
        outcome.findings += await asyncio.to_thread(findings, group.nodes, load.acknowledged, plan.minimum)
    return outcome


async def disturb(
    group: SupervisedGroup,
    load: Load,
    victim: SupervisedNode,
    fault: str,
    plan: Plan,
    wrong: list[str],
    *,
    is_last: bool,
) -> Figures:
    """Run one fault, and wait until its follower is back: in sync after the last fault, else linked again.

    After more than one fault for each follower it is only linked: each removal doubles its time until it counts again.
    """
    exits = len(victim.exits)
    begin_ns = time.monotonic_ns()
    over = asyncio.Event()
    ending = asyncio.create_task(end_of_fault(over, load, plan, begin_ns))
    await FAULTS[fault](victim, over)
    await ending
    healed_ns = time.monotonic_ns()
    if victim.needs_operator:
        await victim.obey()
    waits = is_last and len(plan.faults) <= len(group.followers)
    condition = group.all_in_sync if waits or plan.minimum == STRICT else group.all_linked
    problem = await group.wait(condition, BACK_LIMIT_S)
    if victim.needs_operator:  # it ended after the fault
        await victim.obey()
        problem = await group.wait(condition, BACK_LIMIT_S)
    back_ns = time.monotonic_ns()
    if problem:
        victim.is_back = False
        wrong.append(f"{fault}: {victim.name} is not back, {problem}: {victim.last_line}")
    errors = load.results(begin_ns, healed_ns)
    refused = errors.pop(REFUSED, 0)
    if plan.minimum == STRICT and not refused:
        wrong.append(f"{fault}: no send was refused with {REFUSED} below minInSyncReplicas: {dict(errors)}")
    return Figures(
        fault,
        sum(begin_ns <= one.at_ns <= healed_ns for one in load.acknowledged),
        refused,
        errors,
        load.longest_pause_s(begin_ns, back_ns),
        (back_ns - healed_ns) / 1e9,
        victim.exits[exits:],
        victim.asked,
    )


async def end_of_fault(over: asyncio.Event, load: Load, plan: Plan, begin_ns: int) -> None:
    """End a fault after its time; with three copies not before a send was refused, which takes long if the machine is
    busy."""
    await asyncio.sleep(plan.seconds)
    deadline = time.monotonic() + BACK_LIMIT_S
    while plan.minimum == STRICT and not load.results(begin_ns, time.monotonic_ns())[REFUSED]:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(REFUSED_POLL_S)
    over.set()


def too_long(plan: Plan, outcome: Outcome) -> list[str]:
    """Return the pauses that are longer than allowed: findings of the command, but not of a test."""
    if plan.minimum == STRICT:
        return []
    return [
        f"{one.fault}: no message was acknowledged for {one.longest_pause_s:.2f} s"
        for one in outcome.figures
        if one.longest_pause_s > PAUSE_LIMIT_S
    ]


def main() -> int:
    """Run the command; return 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=tuple(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--minimum", action="append", type=int, choices=(SURVIVED, STRICT), help="only this setting")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of each fault")
    parser.add_argument("--results", type=Path, help="CSV file to which each fault appends a line")
    parser.add_argument("--keep", type=Path, help="an empty directory for stores and logs, which is kept")
    given = parser.parse_args()
    if not can_observe():
        parser.error("it needs gcc")
    failed = False
    with tempfile.TemporaryDirectory(prefix="replication-faults-") as temporary:
        home = given.keep or Path(temporary)
        library = build_library(Path(temporary))
        for minimum in given.minimum or (SURVIVED, STRICT):
            for fault in given.fault or FAULTS:
                plan = Plan((fault,), minimum, given.seconds)
                outcome = uvloop.run(run(plan, home / f"{fault}-{minimum}", library))
                failed = bool(report(plan, outcome, given.results)) or failed
    return 1 if failed else 0


def report(plan: Plan, outcome: Outcome, file: Path | None) -> list[str]:
    """Print an outcome, append it to the results, and return what is wrong."""
    wrong = outcome.findings + too_long(plan, outcome)
    if outcome.skipped:
        print(f"min {plan.minimum}: {', '.join(plan.faults)} skipped: {outcome.skipped}", flush=True)
    for one in outcome.figures:
        print(f"min {plan.minimum}: {one}", flush=True)
        if file is not None:
            trial = (results.today(), results.commit(), one.fault, plan.minimum, f"{plan.seconds:g}")
            counts = (one.acknowledged, one.refused, sum(one.other_errors.values()))
            times = (f"{one.longest_pause_s:.2f}", f"{one.back_s:.1f}")
            codes, load = " ".join(map(str, one.exits)), f"{os.getloadavg()[0]:.1f}"
            results.append(file, COLUMNS, (*trial, *counts, *times, codes, load, len(wrong)))
    for line in wrong:
        print(f"    FINDING {line}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
