"""Verification of every store that a test has used."""

from pathlib import Path

import msgspec

from skylarkmq.broker.store.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.fsck import Finding, Severity, Sizes, check
from skylarkmq.protocol.disk import IndexLayout


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


def assert_consistent(root: Path, config: StoreConfig | None = None) -> None:
    """Raise AssertionError with every damage that the store check finds."""
    damage = [finding for finding in findings_of(root, config) if finding.severity is Severity.DAMAGE]
    assert damage == [], "\n".join(f"{finding.file}:{finding.offset}: {finding.what}" for finding in damage)
