"""The Python entry of `mqspark-replay`.

    replay = Replay(
        source=Archive("lake/archive"),
        selection=Selection(topics=("Orders",), since_ms=1_700_000_000_000),
        targets=Targets(to_topic="Orders-again"),
        cluster=ClusterOptions(name_server="127.0.0.1:9876"),
        directory="replay-1",
    )
    summary = run(replay)

Calling `run` again with the same definition resumes; a finished replay sends nothing. The definition is source,
selection and targets; the rate, the limits and the cluster's addresses may change.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.spark.replay.brokers import Brokers
from skylarkmq.clients.spark.replay.errors import Stopped
from skylarkmq.clients.spark.replay.job import Job, counted
from skylarkmq.clients.spark.replay.journal import Journal, Saved
from skylarkmq.clients.spark.replay.pace import Pace
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.selection import Selection, Selector
from skylarkmq.clients.spark.replay.sources import Source, opened
from skylarkmq.clients.spark.replay.targets import Targets

GROUP: Final = "mqspark-replay"
POLL_S: Final = 0.2


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What to send again, and where. `rate`: messages a second, None: as fast as possible.

    `cluster` is the cluster of the new topics; only a dry run needs none. `directory` keeps the state and the map of
    offsets. `group` names the producer, and the consumer that reads the ends of the new queues when a replay is
    resumed.
    """

    source: Source
    directory: str
    cluster: ClusterOptions | None = None
    selection: Selection = Selection()
    targets: Targets = Targets()
    rate: float | None = None
    limits: Limits = Limits()
    group: str = GROUP

    def definition(self) -> dict[str, Any]:
        """Return what identifies the replay, as values of JSON."""
        parts = {"source": self.source.identity(), "selection": self.selection, "targets": self.targets}
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(parts))
        return found


class Progress(msgspec.Struct, frozen=True):
    """How far a run is. `total`: rows to read, None if unknown; `sent`: acknowledged copies of this run."""

    read: int
    total: int | None
    sent: int


class Summary(msgspec.Struct, frozen=True):
    """The result of a run, in messages.

    `sent_before`: by earlier runs, `found`: those among them that were sent and not recorded. `doubles`: stored twice,
    because a broker stored a request long after its connection had ended. `not_replicated`: stored, but the broker
    reported a slow disk or a missing slave. `topics`: sent now, by new topic.
    """

    read: int
    selected: int
    seconds: float
    topics: dict[str, int]
    replay: str | None = None  # None: a dry run
    map: str | None = None
    sent_before: int = 0
    sent: int = 0
    found: int = 0
    doubles: int = 0
    not_replicated: int = 0
    retries: int = 0


def run(replay: Replay, on_progress: Callable[[Progress], None] = lambda _: None) -> Summary:
    """Send what was not sent before, and return when all of it is acknowledged.

    Raises ReplayFailed, JournalError, ArchiveUnreadable or another error of the source, ClientError, OSError, and
    ValueError for an invalid condition. `on_progress` is called from another thread. KeyboardInterrupt stops the run.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(1, "replay") as thread:
        running = thread.submit(lambda: asyncio.run(_run(replay, stop, on_progress)))
        try:
            return running.result()
        except BaseException:
            stop.set()
            raise


def dry_run(replay: Replay) -> Summary:
    """Return what a new replay would select, by new topic, without sending it. Raises the errors of `run`."""
    began = time.monotonic()
    source = opened(replay.source, replay.selection)
    counts = counted(source.batches(), Selector(replay.selection, ""), replay.targets)
    return Summary(
        read=counts.read,
        selected=counts.selected,
        seconds=time.monotonic() - began,
        topics=dict(sorted(counts.topics.items())),
    )


async def _run(replay: Replay, stop: threading.Event, on_progress: Callable[[Progress], None]) -> Summary:
    began = time.monotonic()
    if replay.cluster is None:
        raise ValueError("the cluster of the new topics must be set")
    new = Saved(uuid.uuid4().hex[:12], time.time_ns() // 1_000_000, replay.definition())
    journal = Journal.open(Path(replay.directory), new, replay.targets)
    try:
        selector = Selector(replay.selection, journal.saved.id)
        source = opened(replay.source, replay.selection)
        before = journal.rows

        def observe(job: Job) -> None:
            on_progress(Progress(job.counts.read, source.rows, journal.rows - before - job.found))

        client = Client(replay.cluster.name_server, replay.cluster.client_settings())
        async with client, Brokers(client, replay.group) as brokers:
            pace = Pace(replay.rate, time.monotonic)
            job = Job(source.batches(), selector, replay.targets, brokers, journal, pace, replay.limits, observe)
            await _unless_stopped(job, stop)
        observe(job)
        senders = job.senders.values()
        return Summary(
            replay=journal.saved.id,
            read=job.counts.read,
            selected=job.counts.selected,
            sent_before=job.counts.sent_before,
            sent=journal.rows - before - job.found,
            found=job.found,
            doubles=sum(sender.doubles for sender in senders),
            not_replicated=sum(sender.unreplicated for sender in senders),
            retries=sum(sender.retries for sender in senders),
            seconds=time.monotonic() - began,
            topics=dict(sorted(job.counts.topics.items())),
            map=str(journal.map_directory),
        )
    finally:
        journal.close()


async def _unless_stopped(job: Job, stop: threading.Event) -> None:
    """Run the job to its end, or cancel it once `stop` is set. Raises Stopped."""
    running = asyncio.ensure_future(job.run())
    while not running.done():
        await asyncio.wait([running], timeout=POLL_S)
        if stop.is_set() and not running.done():
            running.cancel()
            await asyncio.wait([running])
            raise Stopped("stopped: run the same command again to send the rest")
    running.result()
