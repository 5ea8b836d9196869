"""A workload run, in one process or in several: what the commands call, and what a benchmark of ours may call too.

Several processes each take a share of the connections and of the rate; each tells its intervals and at last its figures
over a pipe. They are spawned, not forked, so that none inherits a lock that another thread holds.
"""

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection, wait

from skylarkmq.clients.mqbench.clusters import Bounds, Broker
from skylarkmq.clients.mqbench.pull_load import Ending, PullLoad
from skylarkmq.clients.mqbench.recorder import Figures, Interval, OnInterval, merged, nobody
from skylarkmq.clients.mqbench.send_load import AtEdge, SendLoad, nothing
from skylarkmq.clients.mqbench.single_send_load import OneSend
from skylarkmq.clients.mqbench.workloads import Workload

Part = Callable[[Workload, OnInterval], Figures]


class ProcessFailed(Exception):
    """One of several processes ended without figures."""


def produce(
    workload: Workload, brokers: list[Broker], on_interval: OnInterval = nobody, at_edge: AtEdge = nothing
) -> Figures:
    """Send for the workload's time; `at_edge` is called as the measuring begins and ends (in one process only)."""
    if workload.processes > 1:
        return in_processes(_produce_part, (brokers,), workload, on_interval)
    load = SendLoad(workload, brokers, on_interval)
    try:
        return undisturbed(lambda: load.run(at_edge))
    finally:
        load.close()


def fill(workload: Workload, brokers: list[Broker], on_interval: OnInterval = nobody) -> Figures:
    """Send the workload's backlog, as fast as it goes."""
    load = SendLoad(workload, brokers, on_interval)
    try:
        return undisturbed(lambda: load.send_exactly(workload.backlog))
    finally:
        load.close()


def one_in_flight(
    workload: Workload, broker: Broker, on_interval: OnInterval = nobody, at_edge: AtEdge = nothing
) -> Figures:
    """Send one message at a time for the workload's time."""
    load = OneSend(workload, broker, on_interval)
    try:
        return undisturbed(lambda: load.run(at_edge))
    finally:
        load.close()


def consume(
    workload: Workload,
    bounds: list[Bounds],
    ending: Ending,
    on_interval: OnInterval = nobody,
    at_edge: AtEdge = nothing,
) -> Figures:
    """Read queues: to their end, or for the workload's time."""
    load = PullLoad(workload, bounds, ending, on_interval)
    try:
        return undisturbed(load.read_all if ending is Ending.STOP else lambda: load.run(at_edge))
    finally:
        load.close()


def undisturbed(work: Callable[[], Figures]) -> Figures:
    """Run without the collector of garbage, of which a load makes none."""
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
    """Run a part of the workload in each of its processes at once."""
    spawn = multiprocessing.get_context("spawn")
    count = min(workload.processes, workload.connections)
    ends: list[Connection] = []
    for number in range(count):
        ours, theirs = spawn.Pipe(duplex=False)
        spawn.Process(target=_tell, args=(part, workload.share(number, count), arguments, theirs), daemon=True).start()
        theirs.close()
        ends.append(ours)
    return merged(gathered(ends, on_interval))


def gathered(ends: list[Connection], on_interval: OnInterval) -> list[Figures]:
    """What each process measured; intervals are passed on as they come. ProcessFailed."""
    figures: list[Figures] = []
    while ends:
        for end in wait(ends):
            assert isinstance(end, Connection)
            try:
                told = end.recv()
            except EOFError:
                raise ProcessFailed("a process of the load ended before its time") from None
            if isinstance(told, Interval):
                on_interval(told)
            elif isinstance(told, Figures):
                figures.append(told)
                ends.remove(end)
            else:
                raise ProcessFailed(str(told))
    return figures


def _tell(part: Callable[..., Figures], workload: Workload, arguments: tuple[object, ...], pipe: Connection) -> None:
    try:
        pipe.send(part(workload, *arguments, pipe.send))
    except (OSError, ValueError) as error:
        pipe.send(f"{type(error).__name__}: {error}")
