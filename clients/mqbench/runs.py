"""Runs of a workload, in one process or several: the functions of the commands, also used by our benchmarks.

Each of several processes has a share of the connections and of the rate; it sends its intervals, and finally its
figures, over a pipe. Processes are spawned, not forked, so they do not inherit locks that another thread holds.
"""

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from skylarkmq.clients.mqbench.clusters import Bounds, Broker
from skylarkmq.clients.mqbench.pull_load import Ending, PullLoad
from skylarkmq.clients.mqbench.recorder import Figures, Interval, OnInterval, ignore_interval, merged
from skylarkmq.clients.mqbench.send_load import AtEdge, SendLoad, do_nothing
from skylarkmq.clients.mqbench.single_send_load import SingleSendLoad
from skylarkmq.clients.mqbench.workloads import Workload

Part = Callable[[Workload, OnInterval], Figures]


class ProcessFailed(Exception):
    """A process of the load ended without figures."""


def produce(
    workload: Workload, brokers: list[Broker], on_interval: OnInterval = ignore_interval, at_edge: AtEdge = do_nothing
) -> Figures:
    """Send for the workload's time; `at_edge` is called at the begin and end of the measurement (one process only)."""
    if workload.processes > 1:
        return in_processes(_produce_part, (brokers,), workload, on_interval)
    load = SendLoad(workload, brokers, on_interval)
    try:
        return without_garbage_collector(lambda: load.run(at_edge))
    finally:
        load.close()


def fill(workload: Workload, brokers: list[Broker], on_interval: OnInterval = ignore_interval) -> Figures:
    """Send the workload's backlog at full speed."""
    load = SendLoad(workload, brokers, on_interval)
    try:
        return without_garbage_collector(lambda: load.send_exactly(workload.backlog))
    finally:
        load.close()


def send_one_at_a_time(
    workload: Workload, broker: Broker, on_interval: OnInterval = ignore_interval, at_edge: AtEdge = do_nothing
) -> Figures:
    """Send one message at a time for the workload's time."""
    load = SingleSendLoad(workload, broker, on_interval)
    try:
        return without_garbage_collector(lambda: load.run(at_edge))
    finally:
        load.close()


def consume(
    workload: Workload,
    bounds: list[Bounds],
    ending: Ending,
    on_interval: OnInterval = ignore_interval,
    at_edge: AtEdge = do_nothing,
) -> Figures:
    """Read queues to their end, or for the workload's time."""
    load = PullLoad(workload, bounds, ending, on_interval)
    try:
        return without_garbage_collector(load.read_all if ending is Ending.STOP else lambda: load.run(at_edge))
    finally:
        load.close()


def without_garbage_collector(work: Callable[[], Figures]) -> Figures:
    """Run without the garbage collector: a load creates no reference cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return work()
    finally:
        if enabled:
            gc.enable()


def _produce_part(workload: Workload, brokers: list[Broker], on_interval: OnInterval) -> Figures:
    return produce(workload, brokers, on_interval)


def in_processes(
    part: Callable[..., Figures], arguments: tuple[object, ...], workload: Workload, on_interval: OnInterval
) -> Figures:
    """Run each process's part of the workload concurrently."""
    spawn = multiprocessing.get_context("spawn")
    count = min(workload.processes, workload.connections)
    ends: list[Connection] = []
    for number in range(count):
        ours, theirs = spawn.Pipe(duplex=False)
        spawn.Process(
            target=_run_part, args=(part, workload.share(number, count), arguments, theirs), daemon=True
        ).start()
        theirs.close()
        ends.append(ours)
    return merged(collect_figures(ends, on_interval))


def collect_figures(ends: list[Connection], on_interval: OnInterval) -> list[Figures]:
    """Return the figures of each process; intervals are passed on as they arrive. Raises ProcessFailed."""
    figures: list[Figures] = []
    while ends:
        for end in wait(ends):
            assert isinstance(end, Connection)
            try:
                received = end.recv()
            except EOFError:
                raise ProcessFailed("a process of the load ended early") from None
            if isinstance(received, Interval):
                on_interval(received)
            elif isinstance(received, Figures):
                figures.append(received)
                ends.remove(end)
            else:
                raise ProcessFailed(str(received))
    return figures


def _run_part(
    part: Callable[..., Figures], workload: Workload, arguments: tuple[object, ...], pipe: Connection
) -> None:
    try:
        pipe.send(part(workload, *arguments, pipe.send))
    except (OSError, ValueError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
