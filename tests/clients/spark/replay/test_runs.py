"""Rows by stream, and the copies that are made of them."""

import pyarrow as pa
import pytest

from skylarkmq.clients.spark.replay.copies import MARK
from skylarkmq.clients.spark.replay.errors import ReplayFailed
from skylarkmq.clients.spark.replay.journal import Stream
from skylarkmq.clients.spark.replay.runs import CopyMaker, runs
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MAX_PROPERTIES_BYTES, decode_properties
from tests.clients.spark.replay.world import mixed, rows

A, B = MessageQueue("Orders", "a", 0), MessageQueue("Orders", "a", 1)


def only(table: pa.Table) -> pa.RecordBatch:
    (batch,) = mixed(table, 1000)
    return batch


def test_the_rows_of_a_stream_keep_their_order() -> None:
    """Queues that are mixed in the batch are separated."""
    batch = only(rows([A, B], 3))
    found = {
        run.stream: [batch.column("queueOffset")[row].as_py() for row in run.rows] for run in runs(batch, Targets())
    }
    assert found == {Stream(A, "Orders"): [0, 2, 4], Stream(B, "Orders"): [0, 2, 4]}


def test_a_dead_letter_goes_to_the_topic_that_it_names() -> None:
    """Each topic of a dead-letter queue is a stream of its own. A dead letter that names none needs a topic."""
    dead = MessageQueue("%DLQ%g", "a", 0)
    letters = [
        rows([dead], 1, queueOffset=at, properties=f"RETRY_TOPIC\x01{topic}\x02") for at, topic in enumerate("XYX")
    ]
    batch = only(pa.concat_tables([*letters, rows([A], 1)]))
    assert {run.stream: len(run.rows) for run in runs(batch, Targets())} == {
        Stream(dead, "X"): 2,
        Stream(dead, "Y"): 1,
        Stream(A, "Orders"): 1,
    }
    with pytest.raises(ReplayFailed, match="message 0 of %DLQ%g@a:0 has no property RETRY_TOPIC or DLQ_ORIGIN_TOPIC"):
        list(runs(only(rows([dead], 1)), Targets()))


def test_a_store_without_a_broker_name_has_streams() -> None:
    """The name is empty then."""
    (run,) = runs(only(rows([A], 1, brokerName=None)), Targets())
    assert run.stream.source.broker_name == ""


def test_a_copy_has_the_stored_body_its_flag_and_its_compression() -> None:
    """The bits of the sysFlag for transactions and hosts are not kept."""
    batch = only(rows([A], 2, sysFlag=0x1 | 0x8 | 0x10 | 0x300, body=b"\x78\x9c"))
    (run,) = runs(batch, Targets(delay_level=4))
    first, second = CopyMaker(batch, "r", Targets(delay_level=4)).copies(run)
    assert (bytes(first.body), first.flag, first.compression, first.offset) == (b"\x78\x9c", 7, 0x301, 0)
    properties = decode_properties(second.properties.decode())
    assert properties == {"n": "1", "UNIQ_KEY": f"id-{A}-2", MARK: "r:Orders:a:0:2", "DELAY": "4"}


def test_slices_and_missing_values_are_copied_correctly() -> None:
    """A batch may begin in the middle of its buffers; a message may have neither properties nor a body."""
    table = pa.concat_tables([rows([A], 2), rows([B], 1, body=None, properties=None, flag=None)]).combine_chunks()
    batch = table.slice(1).to_batches()[0]
    copies = [copy for run in runs(batch, Targets()) for copy in CopyMaker(batch, "r", Targets()).copies(run)]
    assert [(bytes(copy.body), copy.flag) for copy in copies] == [(f"{A} 2".encode(), 7), (b"", 0)]
    assert copies[1].properties == f"{MARK}\x01r:Orders:a:1:0\x02".encode()


def test_properties_at_the_limit_are_copied_and_longer_ones_named() -> None:
    """The mark is part of the properties, whose limit is 32,767 bytes."""
    mark = len(f"{MARK}\x01r:Orders:a:0:0\x02")
    exact = "a\x01" + "b" * (MAX_PROPERTIES_BYTES - mark - 3) + "\x02"
    batch = only(rows([A], 1, properties=exact))
    (run,) = runs(batch, Targets())
    (copy,) = CopyMaker(batch, "r", Targets()).copies(run)
    assert len(copy.properties) == MAX_PROPERTIES_BYTES
    batch = only(rows([A], 1, properties="c" + exact))
    with pytest.raises(ReplayFailed, match="message 0 of Orders@a:0 has properties of 32768 bytes"):
        list(CopyMaker(batch, "r", Targets()).copies(run))
