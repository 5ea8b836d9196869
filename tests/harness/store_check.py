"""Verification of every store that a test has used."""

from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.fsck import Finding, Severity, Sizes, check
from skylarkmq.protocol.disk import IndexLayout

BEGINS_AGAIN: Final = "begin at offset 0 again"
"""In the finding of `store verify` about queues whose offsets begin again."""


def findings_of(root: Path, config: StoreConfig | None = None) -> list[Finding]:
    """Return the findings of the store check. `config` gives the file sizes, which are guessed without it."""
    if config is None:
        return list(check(root))
    sizes = msgspec.structs.replace(
        Sizes.of(root),
        commit_log=config.mapped_file_size_commit_log,
        consume_queue=config.mapped_file_size_consume_queue,
        index=IndexLayout(config.max_hash_slot_num, config.max_index_num),
    )
    delay_levels = parse_delay_levels(config.message_delay_level)
    return list(check(root, sizes, delay_levels=delay_levels, is_indexed=config.message_index_enable))


def assert_consistent(root: Path, config: StoreConfig | None = None, *, may_begin_again: bool = False) -> None:
    """Raise AssertionError with every damage that the store check finds.

    `may_begin_again`: the log is that of RocketMQ's broker or of another node, which deleted topics: queues may begin
    at offset 0 again. In a log of this node that means that messages were numbered a second time.
    """
    bad = [
        finding
        for finding in findings_of(root, config)
        if finding.severity is Severity.DAMAGE or (BEGINS_AGAIN in finding.what and not may_begin_again)
    ]
    assert bad == [], "\n".join(f"{finding.file}:{finding.offset}: {finding.what}" for finding in bad)
