"""Quotas per second: how many requests and bytes one client address, one account and one topic may use.

A request above a quota waits. The dispatcher holds its connection: the requests after it in the same read are deferred,
and the kernel's buffers slow the client down. This is backpressure, so a client with few requests in flight gets no
error. A request that would wait for more than `quotaMaxWaitMills`, counted from its arrival, is refused with
SYSTEM_BUSY (2): a client that sends so much without a limit runs into its own timeouts anyway. Requests that end or
keep accepted work (FINISHING), such as offset commits and heartbeats, wait for at most that time and are not refused.

A waiting request takes its tokens at once (`_reserved`), so later requests cannot overtake it. It is repeated after its
wait, and then served without another check of the buckets.

Bytes sent are known only after a response. They are taken when the next request of the connection arrives, or when it
is closed; the bytes of a topic when the group pulls again. Until the level is positive again, requests wait.

Source: docs/reference/behaviour.md, "Quotas".
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.access.caller import Caller
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.quota_refusals import Counts, Refusals, Scope, setting_of
from skylarkmq.broker.access.token_buckets import MAX_KEYS, NANOS, Amounts, Kind, Meter, Meters, MetersStatistics
from skylarkmq.broker.remoting.dispatch import MustWait
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.message import MAX_GROUP_LENGTH, MAX_STORED_TOPIC_LENGTH

SHORTEST_WAIT_NS: Final = 5_000_000
"""A held connection continues with the requests of at least this time: one timer for each request would cost more than
the requests."""
SENDS: Final[Mapping[int, type[SendMessageHeader] | type[SendMessageV2Header]]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2Header,
}
PULLS: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
FINISHING: Final = frozenset((
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.END_TRANSACTION,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
))  # fmt: skip
"""Requests that end or keep work which the broker has accepted before, and the registrations of a name server."""


class QuotaStatistics(msgspec.Struct, frozen=True):
    """`delayed`: requests that had to wait since the start, by scope and kind. `meters`: by scope."""

    delayed: Counts
    meters: dict[str, MetersStatistics]


class Quotas:
    """The quotas of a broker. `now_ns` is the clock of `RequestSource.arrived_s`. `delivered` returns the bytes that a
    group has received from a topic since the start."""

    def __init__(
        self,
        config: QuotaConfig,
        refusals: Refusals,
        now_ns: Callable[[], int],
        delivered: Callable[[str, str], int] = lambda _topic, _group: 0,
    ) -> None:
        self._refusals = refusals
        self._now_ns = now_ns
        self._delivered = delivered
        self._meters = {scope: Meters() for scope in Scope}
        self._active: list[Scope] = []
        self._reserved: dict[RequestSource, RemotingCommand] = {}
        self._charged: dict[RequestSource, tuple[int, str]] = {}  # bytes sent that were taken, and the last account
        self._delivered_before: OrderedDict[tuple[str, str], int] = OrderedDict()  # the oldest pull first
        self._delayed: Counts = {}
        self.configure(config)

    def __repr__(self) -> str:
        return f"<Quotas {[scope.value for scope in self._active]} reserved={len(self._reserved)}>"

    def configure(self, config: QuotaConfig) -> None:
        """Apply these quotas from now on. Buckets whose rate or size has changed begin full."""
        for scope, meters in self._meters.items():
            meters.configure(rates_of(config, scope), config.quota_burst_mills)
        self._active = [scope for scope, meters in self._meters.items() if any(meters.rates)]
        self._counts_output = any(meters.rates[-1] for meters in self._meters.values())
        self._counts_topic_output = self._meters[Scope.TOPIC].rates[-1] > 0
        self._max_wait_ns = config.quota_max_wait_mills * 1_000_000
        self._charged.clear()
        self._delivered_before.clear()

    def statistics(self) -> QuotaStatistics:
        """Return the current figures."""
        meters = {scope.value: meters.statistics() for scope, meters in self._meters.items()}
        return QuotaStatistics(dict(self._delayed), meters)

    @property
    def is_active(self) -> bool:
        """Return whether there is any quota per second."""
        return bool(self._active)

    checks_data = True
    """Sends and pulls are counted."""

    def forget(self, source: RequestSource) -> None:
        """Count the rest of the bytes that were sent to a closed connection."""
        self._reserved.pop(source, None)
        charged = self._charged.pop(source, None)
        if charged is not None:
            sent_bytes = source.output_bytes - charged[0]
            for scope, key in ((Scope.CLIENT, source.host), (Scope.ACCOUNT, charged[1])):
                if key and self._meters[scope].rates[-1]:
                    self._meters[scope].filled(key, self._now_ns()).take((0, 0, sent_bytes))

    # ------------------------------------------------------------------------------------------------- called by a gate

    def admit(self, source: RequestSource, command: RemotingCommand, caller: Caller) -> None:
        """Count a request. Raises MustWait or RequestError if a quota does not permit it now."""
        if self._reserved and self._reserved.get(source) is command:
            del self._reserved[source]
            return
        now_ns = self._now_ns()
        meters = self._metered(source, command, caller, now_ns)
        amounts = (1, size_of(command), 1)
        wait_ns, cause = longest_wait(meters, amounts)
        if wait_ns:
            wait_ns = max(wait_ns, SHORTEST_WAIT_NS)
            left_ns = self._max_wait_ns - max(now_ns - int(source.arrived_s * NANOS), 0)
            if wait_ns > left_ns:
                if command.code not in FINISHING:
                    raise self._refusal(*cause)
                wait_ns = left_ns
        for _, meter in meters:
            meter.take((1, amounts[1], 0))
        if wait_ns > 0:
            self._reserved[source] = command
            reason = (cause[0].value, cause[1].value)
            self._delayed[reason] = self._delayed.get(reason, 0) + 1
            raise MustWait(wait_ns / NANOS)

    def admit_run(self, source: RequestSource, commands: Sequence[RemotingCommand], callers: Sequence[Caller]) -> int:
        """Count these requests, from the first one on, as far as the quotas permit them now; return their number. Those
        of another account or topic than the first one are left for the next call."""
        meters = self._metered(source, commands[0], callers[0], self._now_ns())
        count = self._alike(commands, callers)
        if self._counts_output and commands[0].code in PULLS:
            count = 1  # the next one waits if the response is long
        reserved = int(self._reserved.get(source) is commands[0])
        if reserved:
            del self._reserved[source]
        sizes = [size_of(command) for command in commands[reserved:count]]
        for _, meter in meters:
            sizes = sizes[: meter.fitting(sizes)]
        amounts = (len(sizes), sum(sizes), 0)
        for _, meter in meters:
            meter.take(amounts)
        return reserved + len(sizes)

    # ----------------------------------------------------------------------------------------------------------- meters

    def _metered(
        self, source: RequestSource, command: RemotingCommand, caller: Caller, now_ns: int
    ) -> list[tuple[Scope, Meter]]:
        """Return the meters of a request, after taking the bytes that were sent since the last one."""
        keys = {Scope.CLIENT: source.host, Scope.ACCOUNT: caller.account}
        if Scope.TOPIC in self._active:
            keys[Scope.TOPIC] = topic_of(command)
        meters = [(scope, self._meters[scope].filled(key, now_ns)) for scope in self._active if (key := keys[scope])]
        if self._counts_output:
            sent_bytes = self._newly_sent(source, caller)
            for scope, meter in meters:
                taken = self._newly_delivered(command) if scope is Scope.TOPIC else sent_bytes
                meter.take((0, 0, taken))
        return meters

    def _newly_sent(self, source: RequestSource, caller: Caller) -> int:
        """Return the bytes that were sent to a connection since its last request."""
        total = source.output_bytes
        before, _ = self._charged.get(source, (total, ""))
        self._charged[source] = total, caller.account
        return total - before

    def _newly_delivered(self, command: RemotingCommand) -> int:
        """Return the bytes that a pulling group has received from its topic since its last pull."""
        header = pull_header_of(command) if self._counts_topic_output else None
        if header is None or not topic_of(command) or len(header.consumer_group) > MAX_GROUP_LENGTH:
            return 0
        key = (header.topic, header.consumer_group)
        total = self._delivered(*key)
        before = self._delivered_before.pop(key, total)
        if len(self._delivered_before) >= MAX_KEYS:
            self._delivered_before.popitem(last=False)
        self._delivered_before[key] = total
        return max(total - before, 0)

    def forget_topic(self, topic: str) -> None:
        """Forget what groups have received from a deleted topic."""
        for key in [key for key in self._delivered_before if key[0] == topic]:
            del self._delivered_before[key]

    def _alike(self, commands: Sequence[RemotingCommand], callers: Sequence[Caller]) -> int:
        """Return how many requests, from the first one on, have the same account and topic, as far as quotas differ by
        them."""
        count = len(commands)
        if Scope.ACCOUNT in self._active:
            account = callers[0].account
            count = next((number for number in range(count) if callers[number].account != account), count)
        if Scope.TOPIC in self._active:
            topic = topic_of(commands[0])
            count = next((number for number in range(1, count) if topic_of(commands[number]) != topic), count)
        return count

    def _refusal(self, scope: Scope, kind: Kind, key: str) -> RequestError:
        most = self._meters[scope].rates[list(Kind).index(kind)]
        return self._refusals.error(scope, kind.value, setting_of(scope, f"{kind.value}_per_second"), most, key)


def rates_of(config: QuotaConfig, scope: Scope) -> Amounts:
    """Return the quotas per second of a scope."""
    requests, bytes_in, bytes_out = (getattr(config, f"quota_{scope.value}_{kind.value}_per_second") for kind in Kind)
    return requests, bytes_in, bytes_out


def longest_wait(meters: Sequence[tuple[Scope, Meter]], amounts: Amounts) -> tuple[int, tuple[Scope, Kind, str]]:
    """Return the longest wait of all meters in ns, and the quota that causes it."""
    longest, cause = 0, (Scope.CLIENT, Kind.REQUESTS, "")
    for scope, meter in meters:
        wait_ns, kind = meter.wait_ns(amounts)
        if wait_ns > longest:
            longest, cause = wait_ns, (scope, kind, meter.key)
    return longest, cause


def size_of(command: RemotingCommand) -> int:
    """Return the bytes of a request that count: its body and its header fields."""
    return len(command.body) + command.ext_bytes


def topic_of(command: RemotingCommand) -> str:
    """Return the topic of a send or pull; empty for other requests, unreadable headers, and names too long for a
    topic."""
    header_type = SENDS.get(command.code)
    try:
        header = pull_header_of(command) if header_type is None else command.header(header_type)
    except (RequestError, ProtocolError):
        return ""
    topic = "" if header is None else header.topic
    return topic if len(topic) <= MAX_STORED_TOPIC_LENGTH else ""


def pull_header_of(command: RemotingCommand) -> PullMessageHeader | None:
    """Return the header of a pull; None for other requests and unreadable headers."""
    if command.code not in PULLS:
        return None
    try:
        return command.header(PullMessageHeader)
    except (RequestError, ProtocolError):
        return None
