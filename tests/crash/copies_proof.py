"""What the disks of a group prove after a run: each acknowledged message has enough copies, now and at its time.

    at its time   `minimum` nodes had synced the record when the producer got its response (journals of the disks)
    now           the record is whole in `minimum` logs, at the offset of the response, the leader's among them
    logs          equal, byte by byte; `store verify` finds no damage

A store that did not come back is compared up to its own committed mark.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from skylarkmq.protocol.record import Record, parse
from tests.crash.acknowledged_sends import Acknowledged
from tests.crash.supervised_node import SupervisedNode
from tests.harness.observed_disk import SyncedBytes
from tests.harness.store_check import assert_consistent

SHOWN: Final = 5


def findings(nodes: Sequence[SupervisedNode], acknowledged: Sequence[Acknowledged], minimum: int) -> list[str]:
    """Return what is wrong; the first node leads."""
    logs = [log_of(node) for node in nodes]
    synced = [SyncedBytes(node.disk.journal) for node in nodes]
    wrong = list(different_logs(nodes, logs))
    lost, few, early = [], [], []
    for message in acknowledged:
        record = parse(memoryview(logs[0]), message.offset)
        if not isinstance(record, Record) or bytes(record.body) != message.body:
            lost.append(message)
            continue
        end = message.offset + record.size
        if sum(log[message.offset : end] == logs[0][message.offset : end] for log in logs) < minimum:
            few.append(message)
        if sum(one.has(message.offset, end, message.at_ns) for one in synced) < minimum:
            early.append(message)
    wrong += described(lost, "are not in the leader's log")
    wrong += described(few, f"are in fewer than {minimum} logs")
    wrong += described(early, f"were acknowledged before {minimum} nodes had synced them")
    wrong += [f"{node.name} never synced its log" for node, one in zip(nodes, synced, strict=True) if not one.syncs]
    for node in nodes:
        try:
            assert_consistent(node.store)
        except AssertionError as damage:
            wrong.append(f"store of {node.name}: {damage}")
    return wrong


def log_of(node: SupervisedNode) -> bytes:
    """Return the bytes of its log, without the zeros at the end. It begins at offset 0."""
    return b"".join(file.read_bytes() for file in sorted((node.store / "commitlog").glob("0*"))).rstrip(b"\0")


def different_logs(nodes: Sequence[SupervisedNode], logs: Sequence[bytes]) -> Iterator[str]:
    """Yield each follower whose log differs from the leader's."""
    for node, log in zip(nodes[1:], logs[1:], strict=True):
        if log == logs[0]:
            continue
        mark = int(json.loads((node.store / "haState").read_text())["committed"])
        if node.is_back:
            yield f"the log of {node.name} has {len(log)} bytes and differs from the leader's {len(logs[0])}"
        elif log[:mark] != logs[0][:mark]:
            yield f"the log of {node.name} differs from the leader's below its committed mark {mark}"


def described(messages: Sequence[Acknowledged], what: str) -> Iterator[str]:
    """Yield a line for these messages; none if there are none."""
    if messages:
        first = ", ".join(f"{one.body.split()[0].decode()} at {one.offset}" for one in messages[:SHOWN])
        yield f"{len(messages)} acknowledged messages {what}: {first}"
