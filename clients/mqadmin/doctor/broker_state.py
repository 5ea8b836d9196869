"""Checks of what brokers report: state (GET_BROKER_RUNTIME_INFO, 28) and settings (GET_BROKER_CONFIG, 26)."""

import re
from collections.abc import Iterator
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, Finding, NotExamined, Outcomes, error, note, warning
from skylarkmq.clients.mqadmin.doctor.subject import State, Subject, Target
from skylarkmq.protocol.unsupported_keys import INACTIVE_IN_BROKER

MAX_SKEW_MS: Final = 1_000
"""Clocks that certainly differ by more are a finding."""
DELETES_FROM: Final = 75.0
"""Percent of the disk from which RocketMQ deletes expired files at any hour (diskMaxUsedSpaceRatio)."""
DELETES_ALL_FROM: Final = 85.0
REFUSES_FROM: Final = 90.0
MAX_BYTES_TO_DISPATCH: Final = 64 << 20
MAX_BYTES_TO_FLUSH: Final = 256 << 20
PAGE_CACHE_BUSY_MS: Final = 1_000
"""Default of osPageCacheBusyTimeOutMills: a broker refuses sends if its log is locked for longer."""
SEND_WAIT_MS: Final = 200
"""Default of waitTimeMillsInSendQueue: a broker refuses sends that have waited for longer."""
_DURATION: Final = re.compile(r"\[ (\d{1,9}) days, (\d{1,9}) hours, (\d{1,9}) minutes, (\d{1,9}) seconds \]", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?([KMGTPE]?)i?B?", re.ASCII)
_OF_SKYLARK: Final = "embeddedNamesrvPort"
"""A setting that brokers of RocketMQ do not have."""
_MADE_UP: Final = frozenset({"filterServerNums"})
"""Unsupported keys that Skylark reports even if they are not set."""


async def clocks(subject: Subject) -> Outcomes:
    """The clock of each broker agrees with the clock of this host.

    Its time is `bootTimestamp` + `runtime`, which has a resolution of one second. With the duration of the request this
    gives the least and the greatest possible difference.
    """
    for target, state in (await subject.known_states()).items():
        least_greatest = skew_ms(state)
        if least_greatest is None:
            yield NotExamined(str(target), "the broker does not report its time")
            continue
        least, greatest = least_greatest
        if least > MAX_SKEW_MS or greatest < -MAX_SKEW_MS:
            direction = "ahead of" if least > 0 else "behind"
            near, far = sorted((abs(least), abs(greatest)))
            what = f"its clock is {near / 1000:.1f} to {far / 1000:.1f} s {direction} the clock of this host"
            next_step = "Synchronize both clocks (NTP). Delays, timers, traces and resets by time use them."
            yield warning(str(target), what, next_step)


def skew_ms(state: State) -> tuple[int, int] | None:
    """Return the least and the greatest possible difference, broker - this host; None if it is not reported."""
    boot_ms, runtime = state.number("bootTimestamp"), _DURATION.search(state.table.get("runtime", ""))
    if boot_ms is None or runtime is None:
        return None
    days, hours, minutes, seconds = map(int, runtime.groups())
    broker_ms = int(boot_ms) + 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return broker_ms - state.received_ms, broker_ms + 999 - state.sent_ms


async def disks(subject: Subject) -> Outcomes:
    """No disk is near the limit from which a broker deletes messages early, or refuses new ones."""
    for target, state in (await subject.known_states()).items():
        ratio = state.number("commitLogDiskRatio")
        if ratio is None or ratio < 0:
            yield NotExamined(str(target), "the broker does not report commitLogDiskRatio")
            continue
        used = round(ratio * 100, 1)
        deletes_from = await subject.setting(target, "diskMaxUsedSpaceRatio") or DELETES_FROM
        deletes_all_from = await subject.setting(target, "diskSpaceCleanForciblyRatio") or DELETES_ALL_FROM
        refuses_from = await subject.setting(target, "diskSpaceWarningLevelRatio") or REFUSES_FROM
        where, next_step = str(target), "Free space, enlarge the disk, or shorten fileReservedTime."
        if used >= refuses_from:
            yield error(where, f"the disk is {used:g} % full: from {refuses_from:g} % on, sends fail", next_step)
        elif used >= deletes_all_from:
            what = f"the disk is {used:g} % full: from {deletes_all_from:g} % on, messages are deleted early"
            yield error(where, what, next_step)
        elif used >= deletes_from:
            what = f"the disk is {used:g} % full: from {deletes_from:g} % on, expired files are deleted at any hour"
            yield warning(where, what, next_step)


async def storage(subject: Subject) -> Outcomes:
    """Each broker accepts messages, and writes, flushes and dispatches them as fast as they arrive."""
    for target, state in (await subject.known_states()).items():
        page_cache_ms = await subject.setting(target, "osPageCacheBusyTimeOutMills") or PAGE_CACHE_BUSY_MS
        send_wait_ms = await subject.setting(target, "waitTimeMillsInSendQueue") or SEND_WAIT_MS
        for finding in _storage_findings(target, state, page_cache_ms, send_wait_ms):
            yield finding
        for key in ("dispatchBehindBytes", "remainHowManyDataToFlush", "pageCacheLockTimeMills"):
            if key not in state.table:
                yield NotExamined(str(target), f"the broker does not report {key}")


def _storage_findings(target: Target, state: State, page_cache_ms: float, send_wait_ms: float) -> Iterator[Finding]:
    where = str(target)
    if state.table.get("brokerActive", "true").lower() == "false":
        yield warning(where, "the broker is not active", "Check its role, and the state of its master.")
    behind = state.number("dispatchBehindBytes") or 0
    if behind > MAX_BYTES_TO_DISPATCH:
        what = f"{_mib(behind)} of stored messages are not yet visible to consumers"
        yield warning(where, what, "Run this again. If the number grows, check CPU and disk of the broker.")
    to_flush = size_bytes(state.table.get("remainHowManyDataToFlush")) or 0
    if to_flush > MAX_BYTES_TO_FLUSH:
        what = f"{_mib(to_flush)} of messages are not flushed: a power failure loses them"
        yield warning(where, what, "Check the write rate of the disk.")
    locked_ms = state.number("pageCacheLockTimeMills") or 0
    if locked_ms > page_cache_ms:
        what = f"a write to the log takes {locked_ms:g} ms: from {page_cache_ms:g} ms on, sends fail (page cache busy)"
        yield error(where, what, "Check the disk, and the memory that is left for the page cache.")
    waits_ms = state.number("sendThreadPoolQueueHeadWaitTimeMills") or 0
    if waits_ms > send_wait_ms:
        what = f"sends wait for {waits_ms:g} ms: from {send_wait_ms:g} ms on, they fail (flow control)"
        yield error(where, what, "Send more slowly, or add brokers. Check CPU and disk.")


async def settings(subject: Subject) -> Outcomes:
    """No setting of RocketMQ is set that Skylark accepts, but does not act on."""
    for target, config in (await subject.configs()).items():
        if not isinstance(config, dict):
            yield NotExamined(str(target), f"its settings cannot be read: {config}")
        elif _OF_SKYLARK in config and (keys := sorted((config.keys() & INACTIVE_IN_BROKER) - _MADE_UP)):
            what = f"settings of RocketMQ without effect here: {', '.join(keys)}"
            yield note(str(target), what, "Remove them from the broker's file, or keep them for RocketMQ.")


def size_bytes(text: str | None) -> float | None:
    """Return a size such as `0 B` or `2.9 KiB` in bytes; None if it is no size."""
    match = _SIZE.fullmatch((text or "").strip())
    if match is None:
        return None
    return float(match[1]) * 1024.0 ** " KMGTPE".index(match[2] or " ")


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


CHECKS: Final = (
    Check("clocks", clocks),
    Check("disks", disks),
    Check("storage", storage),
    Check("settings", settings),
)
