"""Published units: the compiled module publishes the same queues as the pure-Python version."""

import random
from collections.abc import Container
from functools import partial
from typing import Any

import pytest

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.dispatch.dispatch import python_gather_units, python_publish
from skylarkmq.broker.store.log.append import PutStatus, PythonAppend
from skylarkmq.broker.store.queue.tail import PythonQueueTail
from skylarkmq.broker.store.queue.topic_traffic import python_note_units
from skylarkmq.broker.store.queue.unit_writes import FULL_BYTES
from skylarkmq.protocol import compiled

record: Any = compiled.load("record")
tails: Any = compiled.load("queue_tail")
dispatch: Any = compiled.load("dispatch")
counts: Any = compiled.load("counts")
pytestmark = pytest.mark.skipif(record is None, reason="the modules are not built, or switched off")


def queues_of(tail: Any) -> list[Any]:
    queues = [tail(topic, number) for topic in ("T", "U") for number in range(3)]
    for queue in queues:
        queue.traffic = Histogram((100, 1_000))
    return queues


def results_of(
    make: Any, tail: Any, gather: Any, publish: Any, note: Any, seed: int, topics: Container[str] | None
) -> tuple[list[Any], list[Any]]:
    """Return the arrival notifications and all other visible results, batch by batch."""
    rng = random.Random(seed)
    queues = queues_of(tail)
    arrivals: list[Any] = []
    seen: list[Any] = []
    waiting: dict[Any, None] = {}
    for _ in range(30):
        appends = []
        for _ in range(rng.choice((1, 4, 40, 400))):
            queue = rng.choice(queues)
            size, code = rng.choice((1, 100, 101, 1_000, 5_000)), rng.getrandbits(64) - (1 << 63)
            places = {"physical_offset": rng.getrandbits(60), "queue_offset": queue.next_offset, "size": size}
            appends.append(make(queue.topic, queue.queue_id, b"", b"", code, 0, 0, 0, bytes(8), queue=queue, **places))
            queue.next_offset += 1
        touched = gather(appends, lambda append: 0, lambda queue: None)
        touched[0].is_removed = rng.random() < 0.2
        units, others = publish(touched, waiting, topics, lambda *what: arrivals.append(what))
        seen.append((units, [queues.index(queue) for queue in waiting]))
        for queue in others:
            seen.append((queues.index(queue), queue.take_new_tags_codes()))
            queue.drop_pending()
            waiting.pop(queue, None)
        for queue in rng.sample(queues, 2):
            note(queue)
        seen += [(queue.end, bytes(queue.pending), queue.traffic.counts[:], queue.traffic.total) for queue in queues]
        seen += [queue.uncounted for queue in queues]
    return arrivals, seen


@pytest.mark.parametrize("topics", [None, {"T"}, ()])
def test_the_same_units_are_published(topics: Container[str] | None) -> None:
    """Units, sizes, and arrivals of the requested topics; full and removed queues are left over."""
    record.set_initial_status(PutStatus.PENDING)
    fast = partial(dispatch.publish, FULL_BYTES)
    for seed in range(20):
        expected = results_of(
            PythonAppend, PythonQueueTail, python_gather_units, python_publish, python_note_units, seed, topics
        )
        modules = record.Append, tails.QueueTail, dispatch.gather_units, fast, counts.note_units
        assert results_of(*modules, seed, topics) == expected
        assert {topic for topic, *_ in expected[0]} == {name for name in "TU" if topics is None or name in topics}
