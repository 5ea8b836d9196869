"""The store's settings: RocketMQ's names in snake case, RocketMQ's defaults.

Source: docs/reference/behaviour.md, "Operator settings".
"""

from enum import Enum
from pathlib import Path

import msgspec

from skylarkmq.protocol.timers import LOG_BLANK_SIZE, UNIT_SIZE

SMALLEST_TIMER_LOG_FILE = UNIT_SIZE + LOG_BLANK_SIZE  # RocketMQ cannot append units to smaller files


class FlushDiskType(Enum):
    """When a send is acknowledged: after the write, or after the sync."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


_ZERO_FILL_PIECE = 256 << 10  # zeros between two syncs: a sync of the log waits for at most one such piece
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the milliseconds of each level, level 1 first, from "1s 5s 1m ...". Raises ValueError if malformed."""
    levels = []
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if unit not in _UNIT_MS or not number.isdecimal():
            raise ValueError(f"a delay level is a number with a unit (s, m, h, d), not {part!r}")
        levels.append(int(number) * _UNIT_MS[unit])
    return tuple(levels)


LIVE = (
    "max_message_size",
    "flush_interval_commit_log",
    "flush_commit_log_least_pages",
    "flush_commit_log_thorough_interval",
    "flush_commit_log_timed",
    "wake_flush_when_put_message",
    "flush_lag_limit",
    "flush_interval_consume_queue",
    "flush_consume_queue_least_pages",
    "flush_consume_queue_thorough_interval",
    "sync_flush_timeout",
    "fast_fail_if_no_buffer_in_store_pool",
    "commit_interval_commit_log",
    "commit_commit_log_least_pages",
    "commit_commit_log_thorough_interval",
    "wake_commit_when_put_message",
    "max_transfer_bytes_on_message_in_memory",
    "max_transfer_count_on_message_in_memory",
    "max_transfer_bytes_on_message_in_disk",
    "max_transfer_count_on_message_in_disk",
    "access_message_in_memory_max_ratio",
    "max_filter_message_size",
    "travel_cq_file_num_when_get_message",
    "file_reserved_time",
    "delete_when",
    "disk_max_used_space_ratio",
    "disk_space_clean_forcibly_ratio",
    "disk_space_warning_level_ratio",
    "clean_file_forcibly_enable",
    "clean_resource_interval",
    "delete_file_batch_max",
    "delete_commit_log_files_interval",
    "delete_consume_queue_files_interval",
    "destroy_maped_file_interval_forcibly",
    "redelete_hanged_file_interval",
    "archive_hold",
    "archive_hold_max_bytes",
    "archive_hold_max_hours",
    "max_msgs_num_batch",
)
"""Fields that can change while the store runs (`MessageStore.configure`)."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one store. Sizes in bytes, intervals in ms. Settings marked (ours) do not exist in RocketMQ."""

    store_path_root_dir: Path  # the directory of the store
    store_host: bytes = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")  # part of every record and message id

    mapped_file_size_commit_log: int = 1 << 30  # bytes of a log segment; fixed for the life of a store
    mapped_file_size_consume_queue: int = 6_000_000  # bytes of a queue segment: 300,000 units
    max_message_size: int = 4 << 20  # bytes of a body; its record may be 64 KiB larger

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH  # a send is acknowledged after the write or the sync
    flush_interval_commit_log: int = 500  # ms between syncs under ASYNC_FLUSH; a power cut loses up to this much
    flush_commit_log_least_pages: int = 4  # a sync is skipped with fewer dirty pages (4 KiB)
    flush_commit_log_thorough_interval: int = 10_000  # ms after which a sync is never skipped
    flush_commit_log_timed: bool = True  # syncs keep their interval; off: a put may end the interval early
    wake_flush_when_put_message: bool = False  # a put ends the interval early if flushCommitLogTimed is off
    flush_lag_limit: int = 256 << 20  # bytes written and not flushed; above it the broker stops reading sends (ours)
    flush_interval_consume_queue: int = 1_000  # ms between flush rounds over the queues
    flush_consume_queue_least_pages: int = 2  # queues with fewer dirty pages (4 KiB) wait for the thorough round
    flush_consume_queue_thorough_interval: int = 60_000  # ms; also the interval of the checkpoint's queue timestamp
    sync_flush_timeout: int = 5_000  # ms that a SYNC_FLUSH producer waits before FLUSH_DISK_TIMEOUT

    warm_maped_file_enable: bool = False  # new log segments are zero-filled and locked in memory
    flush_least_pages_when_warm_maped_file: int = 4_096  # 4 KiB pages of the zero fill between two syncs

    is_follower: bool = False  # the log consists of bytes of another node's log; no message is taken (brokerRole SLAVE)
    transient_store_pool_enable: bool = False  # appends go to a locked buffer first, and a thread writes them
    transient_store_pool_size: int = 5  # buffers, each as large as a log segment
    fast_fail_if_no_buffer_in_store_pool: bool = False  # refuse sends as busy while all buffers wait for the disk
    commit_interval_commit_log: int = 200  # ms between writes of buffers to files; a kill -9 loses up to this much
    commit_commit_log_least_pages: int = 4  # a write is skipped with fewer pages (4 KiB)
    commit_commit_log_thorough_interval: int = 200  # ms after which a write is never skipped
    wake_commit_when_put_message: bool = True  # a put ends commitIntervalCommitLog early

    enabled_append_prop_crc: bool = False  # a checksum over the whole record as its last property, 20 bytes
    force_verify_prop_crc: bool = False  # recovery verifies the record checksum, and rejects records without one

    max_transfer_bytes_on_message_in_memory: int = 262_144  # bytes of one get from the part of the log in memory
    max_transfer_count_on_message_in_memory: int = 32  # messages of one get from the part of the log in memory
    max_transfer_bytes_on_message_in_disk: int = 65_536  # bytes of one get that must be read from disk
    max_transfer_count_on_message_in_disk: int = 8  # messages of one get that must be read from disk
    access_message_in_memory_max_ratio: int = 40  # percent of RAM before the log's end that counts as in memory
    max_filter_message_size: int = 16_000  # bytes of queue units inspected per get: 800 units
    travel_cq_file_num_when_get_message: int = 1  # queue segments that a get may search for its first message
    disk_fall_recorded: bool = True  # record how many bytes of the log each group is behind
    cold_read_threads: int = 4  # concurrent reads of bytes that are not in memory, 256 KiB each (ours)

    message_index_enable: bool = True  # off: no queries by key, and a send is a microsecond cheaper
    message_index_safe: bool = False  # a start rebuilds the whole index first, not just one gigabyte of it
    max_hash_slot_num: int = 5_000_000  # slots of an index file; a change rebuilds all index files
    max_index_num: int = 20_000_000  # keys of an index file (420 MB); a change rebuilds all index files
    max_msgs_num_batch: int = 64  # most messages of a query by key
    default_query_max_num: int = 32  # most messages of a query by unique key

    message_delay_level: str = DEFAULT_DELAY_LEVELS  # the delay of each level, level 1 first
    timer_wheel_enable: bool = True  # messages with a delivery time; off: they are refused
    timer_precision_ms: int = 1_000  # ms of a slot: a delivery may be late by this; fixed for the life of a store
    timer_max_delay_sec: int = 259_200  # longest delay that a message may request, in seconds
    timer_roll_window_slot: int = 172_800  # slots that a message waits at most before it is rescheduled
    timer_flush_interval_ms: int = 1_000  # ms between writes of the wheel; a kill redelivers up to this much
    timer_congest_num_each_slot: int = 2_147_483_647  # messages of a slot above which some are refused
    mapped_file_size_timer_log: int = 100 << 20  # bytes of a timer log segment; fixed for the life of a store
    check_crc_on_recover: bool = True  # off: faster, but damaged bodies are recovered as messages
    open_queue_files: int = 1_024  # descriptors of queue segments kept open at once (ours)
    queue_units_in_memory: int = 1 << 20  # units of all queues that may wait for a write; 0: write at once (ours)

    file_reserved_time: int = 72  # hours that a segment is kept after its last change
    delete_when: tuple[int, ...] = (4,)  # local hours in which expired segments are deleted
    disk_max_used_space_ratio: int = 75  # percent in use above which expired segments are deleted at any hour
    disk_space_clean_forcibly_ratio: int = 85  # percent above which the oldest segments are deleted, expired or not
    disk_space_warning_level_ratio: int = 90  # percent above which new messages are also refused
    clean_file_forcibly_enable: bool = True  # off: no segment is deleted before it expires, however full the disk is
    clean_resource_interval: int = 10_000  # ms between checks of disk and segments
    delete_file_batch_max: int = 10  # most segments deleted after one check
    delete_commit_log_files_interval: int = 100  # ms between two deletions of log segments
    delete_consume_queue_files_interval: int = 100  # pause in ms after each queue from which segments were deleted
    destroy_maped_file_interval_forcibly: int = 120_000  # ms after which transfers of a deleted segment are aborted
    redelete_hanged_file_interval: int = 120_000  # ms between attempts to unlink a file
    archive_hold: bool = False  # due segments wait for the archive (config/archive.json), within these limits (ours)
    archive_hold_max_bytes: int = 0  # bytes of due segments that may wait; 0: the disk ratios alone limit them (ours)
    archive_hold_max_hours: int = 168  # hours since the archive job last completed, after which no segment waits (ours)
    backup_max_rate: int = 256 << 20  # bytes per second that `store backup` copies; 0: no limit (ours)
    force_gap: bool = False  # start although segments of the log are missing in the middle (ours)

    def __post_init__(self) -> None:
        if self.mapped_file_size_consume_queue % 20:
            raise ValueError("mappedFileSizeConsumeQueue must be a multiple of 20")
        if len(self.store_host) not in {8, 20}:
            raise ValueError("the store host is an address of 4 or 16 bytes and a port of 4")
        parse_delay_levels(self.message_delay_level)

    @property
    def zero_fill_bytes(self) -> int:
        """Bytes of zeros written to a new log segment between two syncs; 0: segments are only reserved."""
        if self.warm_maped_file_enable:
            return max(self.flush_least_pages_when_warm_maped_file * 4096, _ZERO_FILL_PIECE)
        return _ZERO_FILL_PIECE if self.is_sync_flush else 0

    @property
    def is_sync_flush(self) -> bool:
        """Whether acknowledgments wait for the sync, and consumers only see synced messages."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH
