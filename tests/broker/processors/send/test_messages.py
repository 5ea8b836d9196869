"""Deferred messages: the fast conversion and the general one give the same result."""

import random
from typing import Final

import pytest

from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, Deferral, FastDefer, RequestedDelays, no_fast_deferral
from skylarkmq.broker.delivery.timer.admission import TimerAdmission, TimerConfig
from skylarkmq.broker.delivery.transactions.transactions import Transactions, TransactionsConfig
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.send import SendMessageHeader
from skylarkmq.protocol.message import decode_properties
from tests.harness.peer import Peer
from tests.harness.rounds import rounds

NOW_MS: Final = 1_700_000_000_123
ENTRIES: Final = (
    "KEYS\x01a b", "KEYS\x01k", "KEYS\x01", "UNIQ_KEY\x01ABC1", "UNIQ_KEY\x01!", "WAIT\x01true", "WAIT\x01false",
    "TAGS\x01t", "PGROUP\x01g", "a\x01b", "a", "", "a\x01b\x01c", "\x01x", "REAL_TOPIC\x01R", "CLUSTER\x01c",
)  # fmt: skip
WISHES: Final = (
    "DELAY\x011", "DELAY\x012", "DELAY\x013", "DELAY\x0199", "DELAY\x010", "DELAY\x01x", "TRAN_MSG\x01true",
    "TRAN_MSG\x01no", "TIMER_DELAY_SEC\x015", "TIMER_DELAY_MS\x011500", "TIMER_DELAY_SEC\x01999999999",
    f"TIMER_DELIVER_MS\x01{NOW_MS + 7_000}",
        "TIMER_DELIVER_MS\x015",
        "TIMER_DEL_UNIQKEY\x01T+k",
        "TIMER_DELAY_MS\x01",
)  # fmt: skip


class Sending:
    """A broker's conversion of a request to an append; `is_short`: by the fast conversion."""

    def __init__(self, *, is_short: bool, **settings: bool) -> None:
        config = TransactionsConfig(broker_ip="10.0.0.1", broker_name="b", store_host=bytes(8), **settings)
        self.transactions = Transactions(config)
        self.requested = RequestedDelays()
        self.timers = TimerAdmission(TimerConfig(), lambda _out_ms: 0, note_request=self.requested.note)
        fast_defers: dict[str, FastDefer] = {
            **dict.fromkeys(TIMER_REQUESTS, self.timers.defer_fast),
            "TRAN_MSG": self.transactions.defer_half_fast,
        }
        self.deferral = Deferral(
            (1_000, 5_000, 10_000), self.timers.defer, self.transactions.half, fast_defers, requested=self.requested
        )
        self.granted = 0
        completion = PropertyCompletion("C", lambda: "MADE")
        defer_fast = self._defer_fast if is_short else no_fast_deferral
        self.messages = SendMessages(completion, 4 << 20, self.deferral.defer, lambda: NOW_MS, defer_fast)
        self.peer = Peer(Dispatcher())

    def _defer_fast(self, append: Append, wish: object, now_ms: int) -> bool:
        is_granted = self.deferral.defer_fast(append, wish, now_ms)  # type: ignore[arg-type] # a DeferralRequest
        self.granted += is_granted
        return is_granted

    def outcome(self, properties: str, sys_flag: int) -> tuple[object, ...]:
        """Return everything that distinguishes messages, and the counters; or the refusal."""
        header = SendMessageHeader("g", "T", "TBW102", 4, 2, sys_flag, 5, 7, properties, 1)
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE, header, b"body")
        try:
            append, key, queue_id = self.messages.single(self.peer.connection, command, header, TopicConfig("T", 4, 4))
        except RequestError as refusal:
            return refusal.code, refusal.remark
        counted = self.timers.statistics(), self.deferral.statistics(), len(self.transactions._incoming)
        asked = {topic: list(buckets.counts) for topic, buckets in self.requested.by_topic.items()}
        stored = decode_properties(append.properties.decode())
        fields = append.topic, append.queue_id, append.tags_code, append.flag, append.sys_flag, append.status
        return *fields, append.born_timestamp, append.reconsume_times, stored, key, queue_id, counted, asked


async def test_the_fast_conversion_equals_the_general_one() -> None:
    """For all kinds of properties: each message is stored, counted or refused in the same way."""
    rng = random.Random(5)
    short, long = Sending(is_short=True), Sending(is_short=False)
    for _ in range(rounds(5_000)):
        entries = rng.choices(ENTRIES, k=rng.randrange(4)) + rng.choices(WISHES, k=rng.choice((1, 1, 1, 2)))
        entries += ["UNIQ_KEY\x01KEY1"] * rng.randrange(2)
        rng.shuffle(entries)
        properties, sys_flag = "\x02".join(entries) + rng.choice(("", "\x02")), rng.choice((0, 0, 4, 8, 12))
        assert short.outcome(properties, sys_flag) == long.outcome(properties, sys_flag), properties
    assert short.granted > rounds(100)


@pytest.mark.parametrize("is_short", [True, False])
async def test_an_unsupported_deferral_is_refused(is_short: bool) -> None:
    """Transactions if they are off, and properties without capacity for those that delivery adds."""
    sending = Sending(is_short=is_short, reject_transaction_message=True)
    code, remark = sending.outcome("TRAN_MSG\x01true\x02UNIQ_KEY\x01K\x02", 4)
    assert (code, str(remark).startswith("the broker[10.0.0.1]")) == (ResponseCode.NO_PERMISSION, True)
    long = "a\x01" + "x" * 32_600 + "\x02UNIQ_KEY\x01K\x02TIMER_DELAY_SEC\x015\x02"
    assert sending.outcome(long, 0)[5] is PutStatus.PROPERTIES_SIZE_EXCEEDED
