"""The plan of a history, made from a seed: the broker's settings, producers and consumers, and faults with their times.

Outcomes of single messages follow from their ids, so that every process derives them by itself: how a transaction ends
(`transaction_outcome`), and how often handlers of a group fail (`failures`).
"""

import zlib
from enum import StrEnum
from random import Random
from typing import Final

import msgspec

from skylarkmq import ClientSettings, TransactionState
from tests.harness.history_events import TopicFilter

PLAIN: Final = "Plain"
KEYED: Final = "Keyed"
BARGAINS: Final = "Bargains"
TOPICS: Final = {PLAIN: 4, KEYED: 4, BARGAINS: 2}
TAGS: Final = ("red", "green", "blue", "")
PRICES: Final = 10
PRICE: Final = "price"
"""The property that one group filters by."""
LEVELS: Final = "1s 2s 1s 1s 1s 1s 1s 1s 1s"
LEVELS_MS: Final = (1000, 2000)
FIRST_RETRY_MS: Final = 1000
FARTHEST_MS: Final = 3000
MAX_TIMES: Final = 3
ENDLESSLY: Final = 1 << 30
BROKER: Final = "broker"
PRODUCER: Final = "producer"
CLIENT: Final = ClientSettings(heartbeat_s=5.0, route_refresh_s=5.0, backoff_max_s=1.0)


class Mode(StrEnum):
    """How a group consumes."""

    CONCURRENT = "concurrent"
    ORDERLY = "orderly"
    BROADCAST = "broadcast"
    PULL = "pull"


class Consuming(msgspec.Struct, frozen=True):
    """A group, and how its members consume."""

    group: str
    mode: Mode
    topics: dict[str, TopicFilter]
    members: int
    max_times: int | None = MAX_TIMES
    concurrency: int = 8
    commit_interval_s: float = 1.0
    pull_batch: int = 32
    lock_life_s: float = 1.5


class Fault(msgspec.Struct, frozen=True):
    """A fault of the broker or of a client (`slot`), `after_s` after the end of the last one, and its duration."""

    after_s: float
    kind: str
    slot: str
    length_s: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """Everything that a seed decides."""

    seed: int
    seconds: float
    profile: str
    settings: dict[str, object]
    producers: int
    consuming: tuple[Consuming, ...]
    faults: tuple[Fault, ...]

    @property
    def saves_ms(self) -> int:
        """Return how much of the commits a crash may lose, in ms."""
        return int(str(self.settings["flushConsumerOffsetInterval"]))


PROFILES: Final = {"calm": 2, "broker": 4, "clients": 4, "all": 10}
BROKER_FAULTS: Final = {"kill": 5, "stop": 2, "pause": 2}
CLIENT_FAULTS: Final = {"kill": 5, "stop": 2, "pause": 1}


def plan_of(seed: int, seconds: float) -> Plan:
    """Return the plan of a run."""
    rng = Random(f"history {seed}")
    (profile,) = rng.choices(list(PROFILES), list(PROFILES.values()))
    consuming = _consuming(rng)
    producers = 2
    slots = [slot_name(PRODUCER, n) for n in range(producers)]
    slots += [slot_name(one.group, n) for one in consuming for n in range(one.members)]
    settings = _settings(rng)
    return Plan(seed, seconds, profile, settings, producers, consuming, tuple(_faults(rng, profile, slots, seconds)))


def slot_name(kind: str, number: int) -> str:
    """Return the name of a slot, which a sequence of clients fills."""
    return f"{kind}-{number}"


def transaction_outcome(message_id: str) -> TransactionState:
    """Return how a transaction ends."""
    return TransactionState.ROLLBACK if _roll(message_id, "transaction_outcome", 3) == 0 else TransactionState.COMMIT


def failures(message_id: str, group: str, mode: Mode, max_times: int | None) -> int:
    """Return how often handlers of a group fail with a message."""
    if mode in {Mode.BROADCAST, Mode.PULL}:
        return 0
    dice = _roll(message_id, group, 200)
    if dice == 0:
        return ENDLESSLY if max_times is not None else 2
    return 1 if dice < 5 else 2 if dice == 5 else 0


def goes_to_dead_letters(message_id: str, mode: Mode) -> bool:
    """Return whether the first handler makes the message a dead letter."""
    return mode is Mode.CONCURRENT and _roll(message_id, "dead", 300) == 0


def _roll(message_id: str, what: str, sides: int) -> int:
    return zlib.crc32(f"{what} {message_id}".encode()) % sides


def _consuming(rng: Random) -> tuple[Consuming, ...]:
    def habits() -> dict[str, object]:
        return {
            "concurrency": rng.choice((2, 4, 20)),
            "commit_interval_s": rng.choice((0.3, 1.0, 2.5)),
            "pull_batch": rng.choice((4, 32)),
        }

    def group(name: str, mode: Mode, topics: dict[str, TopicFilter], members: int, **more: object) -> Consuming:
        return msgspec.convert(
            {"group": name, "mode": mode, "topics": topics, "members": members, **habits(), **more}, Consuming
        )

    everything = TopicFilter()
    return (
        group("workers", Mode.CONCURRENT, {PLAIN: everything, BARGAINS: everything}, rng.randint(2, 3)),
        group("ordered", Mode.ORDERLY, {KEYED: everything}, 2, max_times=rng.choice((None, MAX_TIMES)), concurrency=4),
        group("everyone", Mode.BROADCAST, {PLAIN: everything}, 1, max_times=None),
        group("choosy", Mode.CONCURRENT, {PLAIN: TopicFilter(above=5)}, 1),
        group("readers", Mode.PULL, {PLAIN: TopicFilter(tags=("red", "blue"))}, 1, max_times=None),
    )


def _settings(rng: Random) -> dict[str, object]:
    return {
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeCommitLog": rng.choice((1 << 16, 1 << 17, 1 << 20)),
        "mappedFileSizeConsumeQueue": rng.choice((20 * 50, 20 * 1000)),
        "maxHashSlotNum": 500,
        "maxIndexNum": rng.choice((300, 4000)),
        "fileReservedTime": 100_000,
        "messageDelayLevel": LEVELS,
        "flushConsumerOffsetInterval": rng.choice((500, 5000)),
        "flushDelayOffsetInterval": rng.choice((500, 10_000)),
        "enablePropertyFilter": "true",
        "transactionTimeOut": 800,
        "transactionCheckInterval": rng.choice((300, 900)),
        "transactionCheckMax": 1_000_000,
        "rebalanceLockMaxLiveTime": 3000,
        "transferMsgByHeap": rng.choice(("true", "false")),
        "messageIndexSafe": rng.choice(("true", "false")),
        "enabledAppendPropCRC": rng.choice(("true", "false")),
        "queueUnitsInMemory": rng.choice((0, 10, 1 << 19)),
        "longPollingEnable": rng.choice(("true", "true", "true", "false")),
        "timerPrecisionMs": rng.choice((100, 1000)),
        "timerRollWindowSlot": rng.choice((2, 172_800)),
        "timerFlushIntervalMs": rng.choice((100, 1000)),
        "mappedFileSizeTimerLog": rng.choice((5_200, 1 << 20)),
    }


def _faults(rng: Random, profile: str, slots: list[str], seconds: float) -> list[Fault]:
    targets = {"calm": [], "broker": [BROKER], "clients": slots, "all": [BROKER] * len(slots) + slots}[profile]
    faults = []
    rest_s = seconds - 3.0
    while targets and rest_s > 0:
        slot = rng.choice(targets)
        kinds = BROKER_FAULTS if slot == BROKER else CLIENT_FAULTS
        (kind,) = rng.choices(list(kinds), list(kinds.values()))
        length_s = rng.uniform(0.3, 3.5) if kind == "pause" else rng.choice((0.0, 0.0, rng.uniform(0.0, 2.0)))
        faults.append(Fault(rng.uniform(0.5, 5.0), kind, slot, length_s))
        rest_s -= faults[-1].after_s + length_s
    return faults
