"""The log of a replicated group as the disks have to keep it: what was committed, and what was acknowledged.

The first process that takes bytes for committed decides what they are. From then on each process that takes them for
committed has to have the same bytes, and so has each store of the recorded set that starts again.
"""

from collections import Counter
from collections.abc import Sequence

from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.record import Blank, Record, parse
from tests.crash.linked_machine import GroupSettings, LinkedMachine, LinkedProcess
from tests.harness.stores import records_of

Unit = tuple[int, int, int]


class CommittedLog:
    """The committed log of the group of these machines, from byte 0 on. All checks raise AssertionError."""

    def __init__(self, machines: Sequence[LinkedMachine], settings: GroupSettings) -> None:
        self.data = bytearray()
        self.acknowledged: dict[int, Append] = {}  # by offset in the log
        self._machines = machines
        self._settings = settings
        self._acknowledged_to = 0
        self._ends: list[tuple[int, tuple[str, int] | None]] = []  # end and queue of each record
        self._parsed = 0

    def acknowledge(self, process: LinkedProcess, append: Append) -> None:
        """The leader responds now that a message is stored: enough disks must have it."""
        begin = append.physical_offset
        self._check_copies(begin, process.log_bytes(begin, begin + append.size), "acknowledged")
        self.acknowledged[begin] = append
        self._acknowledged_to = max(self._acknowledged_to, begin + append.size)

    def compare(self) -> None:
        """Compare the logs of all processes below what they take for committed."""
        for machine in self._machines:
            process = machine.process
            if process is None or not process.is_loaded:
                continue
            local = process.node.local
            end = min(local.committed, local.written)
            if end > process.compared:
                self._compare_log(process, end)
            self._check_shown(process)
        committed = len(self.data)
        assert self._acknowledged_to <= committed, f"{self._acknowledged_to} is acknowledged, {committed} committed"

    def _compare_log(self, process: LinkedProcess, end: int) -> None:
        data = process.log_bytes(process.compared, end)
        known = bytes(self.data[process.compared : end])
        assert data.startswith(known), f"the log of {process.name} differs between {process.compared} and {end}"
        if len(data) > len(known):
            new = data[len(known) :]
            self._check_copies(len(self.data), new, f"committed on {process.name}")
            self.data += new
            self._parse()
        process.compared = end

    def _check_copies(self, begin: int, data: bytes, what: str) -> None:
        segment = self._settings.segment_bytes
        copies = sum(machine.has_durably(begin, data, segment) for machine in self._machines)
        assert copies >= self._settings.minimum, f"{len(data)} bytes at {begin} are {what}, {copies} disks have them"

    def _check_shown(self, process: LinkedProcess) -> None:
        shown = process.shown
        assert shown <= len(self.data), f"{process.name} shows {shown}, {len(self.data)} bytes are committed"

    def _parse(self) -> None:
        source = memoryview(bytes(self.data))
        while self._parsed < len(source):
            found = parse(source, self._parsed)
            if isinstance(found, Record):
                key = (found.topic, found.queue_id) if has_unit(found.sys_flag) else None
                self._ends.append((self._parsed + found.size, key))
            elif not isinstance(found, Blank):
                return
            self._parsed += found.size

    def check_loaded(self, process: LinkedProcess, in_sync: Sequence[str]) -> None:
        """Check what a process has found on its disk. `in_sync`: the ids of the stores of the recorded set."""
        local, committed = process.node.local, len(self.data)
        owed = committed if local.store_id in in_sync else min(local.committed, committed)
        assert local.written >= owed, f"{process.name} ends at {local.written}, {owed} bytes are committed"
        assert process.log_bytes(0, owed) == self.data[:owed], f"the log of {process.name} differs"
        self._check_shown(process)
        self.check_queues(process)

    def check_queues(self, process: LinkedProcess) -> None:
        """Check that each queue has a unit for each of its visible records."""
        expected = Counter(key for end, key in self._ends if key is not None and end <= process.shown)
        queues = process.store.queues.by_key
        for key in expected.keys() | queues.keys():
            end = queues[key].end if key in queues else 0
            assert end == expected[key], f"{process.name}: {key} has {end} units, not {expected[key]}"

    def check_messages(self, process: LinkedProcess) -> None:
        """Read all acknowledged messages, and the whole log. Call it with `act`."""
        assert process.log_bytes(0, process.node.local.written) == self.data
        queued = {at: append for at, append in self.acknowledged.items() if has_unit(append.sys_flag)}
        offsets = Counter((one.topic, one.queue_id, one.queue_offset) for one in queued.values())
        for at, append in queued.items():
            key = (append.topic, append.queue_id, append.queue_offset)
            assert offsets[key] == 1, f"{key} was given twice"
            [record] = records_of(process.store.get(*key, 1))
            found = (record.physical_offset, bytes(record.body), record.properties)
            assert found == (at, append.body, append.properties), f"{process.name} has another message at {key}"


def units_of(process: LinkedProcess) -> dict[tuple[str, int], list[Unit]]:
    """Return the units of all queues that have some. Call it with `act`."""
    units: dict[tuple[str, int], list[Unit]] = {}
    for key, queue in process.store.queues.by_key.items():
        found: list[Unit] = []
        while len(found) < queue.end and (more := process.store.units(*key, len(found), 1_000)):
            found += more
        if found:
            units[key] = found
    return units
