"""How to read a store directory. The options of Spark's `format("rocketmq-store")` extend this struct."""

from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.arrow.schema import Columns
from skylarkmq.clients.arrow.store.selection import Selection
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, IndexLayout

SEGMENT: Final = "segment"
QUEUE: Final = "queue"


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a reader of a store directory. Times are milliseconds."""

    path: str
    commit_log_paths: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    key: str | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    partition_by: str = SEGMENT
    max_partition_bytes: int = 128 << 20
    broker_name: str | None = None
    columns: Columns = Columns()
    check_crc: bool = False
    fail_on_data_loss: bool = True
    force_gap: bool = False
    use_index: bool = True
    index_slots: int = 5_000_000
    index_items: int = 20_000_000

    def __post_init__(self) -> None:
        if self.topics is not None and self.topic_pattern is not None:
            raise ValueError("give either subscribe or subscribePattern, not both")

    @property
    def selection(self) -> Selection:
        """The messages that the options select."""
        topics = None if self.topics is None else frozenset(self.topics)
        times = (self.starting_timestamp, self.ending_timestamp)
        return Selection(topics, self.key, *times, self.topic_pattern)

    @property
    def index_layout(self) -> IndexLayout:
        """The layout of the store's index files."""
        return IndexLayout(self.index_slots, self.index_items)

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """The directories of the log's segments."""
        return tuple(map(Path, self.commit_log_paths or (f"{self.path}/{COMMIT_LOG_DIRECTORY}",)))
