"""The store's settings: RocketMQ's names in snake case, RocketMQ's defaults. docs/formats.md, "Operator settings"."""

from enum import Enum
from pathlib import Path

import msgspec


class FlushDiskType(Enum):
    """When a send is answered: after the write, or after the sync."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


_WRITTEN_AT_ONCE = 256 << 10  # bytes that a sync of the log may have to wait for
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level, level 1 first, from "1s 5s 1m ...". ValueError on anything else."""
    levels = []
    for part in text.split():
        number, unit = part[:-1], part[-1]
        if unit not in _UNIT_MS or not number.isdecimal():
            raise ValueError(f"a delay level is a number and one of s m h d, not {part!r}")
        levels.append(int(number) * _UNIT_MS[unit])
    return tuple(levels)


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One store. Sizes in bytes, intervals in ms; the comment says what moves when it is changed."""

    store_path_root_dir: Path
    store_host: bytes = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")  # goes into every record and message id

    mapped_file_size_commit_log: int = 1 << 30  # bytes of a log segment; fixed for the life of a store
    mapped_file_size_consume_queue: int = 6_000_000  # bytes of a queue segment: 300,000 units
    max_message_size: int = 4 << 20  # bytes of a body; its record may have 64 KiB more

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: int = 500  # ms between rounds under ASYNC_FLUSH: what a power cut may take
    flush_commit_log_least_pages: int = 4  # 4 KiB pages below which a round is skipped
    flush_commit_log_thorough_interval: int = 10_000  # ms after which a round is never skipped
    flush_interval_consume_queue: int = 1_000  # ms between rounds over the queues
    flush_consume_queue_least_pages: int = 2  # 4 KiB pages below which a queue is left for the thorough round
    flush_consume_queue_thorough_interval: int = 60_000  # ms; also how often `logics` of the checkpoint moves
    sync_flush_timeout: int = 5_000  # ms a SYNC_FLUSH sender waits before FLUSH_DISK_TIMEOUT

    warm_maped_file_enable: bool = False  # new log segments are written beforehand and locked in memory
    flush_least_pages_when_warm_maped_file: int = 4_096  # 4 KiB pages written beforehand between two syncs

    max_transfer_bytes_on_message_in_memory: int = 262_144  # bytes of one get while the log is hot there
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536  # bytes of one get that must come from disk
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40  # percent of RAM behind the log's end that counts as memory
    max_filter_message_size: int = 16_000  # bytes of queue units inspected per get: 800 units
    travel_cq_file_num_when_get_message: int = 1  # queue segments that a get may look through for its first message
    disk_fall_recorded: bool = True  # keep how many bytes of the log each group is behind
    cold_read_threads: int = 4  # reads under way of what is not in memory, each with 256 KiB (ours)

    message_delay_level: str = DEFAULT_DELAY_LEVELS
    check_crc_on_recover: bool = True  # off: faster, and damaged bodies come back as messages
    open_queue_files: int = 1_024  # descriptors of queue segments kept open at once (ours)

    def __post_init__(self) -> None:
        if self.mapped_file_size_consume_queue % 20:
            raise ValueError("mappedFileSizeConsumeQueue must be a multiple of 20")
        if len(self.store_host) not in {8, 20}:
            raise ValueError("the store host is an address of 4 or 16 bytes and a port of 4")
        parse_delay_levels(self.message_delay_level)

    @property
    def written_beforehand_bytes(self) -> int:
        """How much of a new log segment is filled with zeros between two syncs; 0: segments are only reserved."""
        if self.warm_maped_file_enable:
            return self.flush_least_pages_when_warm_maped_file * 4096
        return _WRITTEN_AT_ONCE if self.is_sync_flush else 0

    @property
    def is_sync_flush(self) -> bool:
        """Answers wait for the sync, and consumers see only what was synced."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH
