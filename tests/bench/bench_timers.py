"""Lateness and cost of timer messages: a steady stream of them, compared with the same stream of ordinary messages.

    python -m tests.bench.bench_timers                                  # 5,000 per second, 10 s, due 8 s later, 1 KiB
    python -m tests.bench.bench_timers --rate 20000 --seconds 5 --delay-ms 20000
    python -m tests.bench.bench_timers --sync                           # SYNC_FLUSH

Like tests/bench/bench_delay.py, by tests/bench/paced.py. Each message has its own due time (TIMER_DELIVER_MS), relative
to the time when the load is prepared. Lateness counts from the due time to the store time in the topic; up to one step
of the wheel (1 s) is permitted. The time after the end of the slot, which is the broker's own part, is listed
separately.

Budget: no message early, none later than a step and 100 ms at 5,000 per second.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.timers import DEQUEUE_MS, OUT_MS
from tests.bench.bench_send import BrokerProcess, call, create_topic
from tests.bench.paced import TOPIC, Stream, arguments, show, spread

PRECISION_MS = 1_000


class TimerStream(Stream):
    """Messages that are due `delay_ms` after they are sent."""

    def __init__(self, broker: BrokerProcess, options: argparse.Namespace) -> None:
        super().__init__(broker, options, (1,))

    def _frames(self) -> Iterator[bytes]:
        begin_ms = time.time() * 1000 + self._options.delay_ms
        body = b"x" * (self._options.body - 8)
        for n in range(self.sent):
            due_ms = int(begin_ms + n * 1000 / self._options.rate)
            properties = f"KEYS\x01k{n}\x02UNIQ_KEY\x01{n:032X}\x02TAGS\x01t\x02TIMER_DELIVER_MS\x01{due_ms}\x02"
            header = SendMessageV2Header("bench", TOPIC, "TBW102", 1, 0, 0, 1_700_000_000_000, 0, properties)
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%08d" % n + body)
            command.opaque = n + 1
            yield encode_command(command)


def main() -> None:
    """Run the benchmark and print its figures."""
    options = parse_arguments()
    settings = {"flushDiskType": "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH"}
    with tempfile.TemporaryDirectory(prefix="bench-timers-", dir=options.directory) as directory:
        broker = BrokerProcess(Path(directory), settings)
        try:
            call(broker.port, create_topic(1, TOPIC))
            plain, timed = Stream(broker, options, ()), TimerStream(broker, options)
            figures = plain.run(0) | timed.run(plain.sent) | lateness(timed.received)
        finally:
            broker.stop()
    figures = {name.replace("delayed", "timer"): value for name, value in figures.items()}
    extra = float(str(figures["cpu_us_per_timer_message"])) - float(str(figures["cpu_us_per_plain_message"]))
    figures["cpu_us_extra_per_timer_message"] = round(extra, 2)
    show(figures, options)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--delay-ms", type=int, default=8_000)
    return parser.parse_args()


def lateness(received: Sequence[tuple[MessageExt, float]]) -> dict[str, object]:
    """Return the lateness of storing; the numbers of early, repeated and undelayed messages."""
    timed = [message for message, _ in received if DEQUEUE_MS in message.properties]
    late = sorted(message.store_timestamp - int(message.properties["TIMER_DELIVER_MS"]) for message in timed)
    behind = sorted(message.store_timestamp - int(message.properties[OUT_MS]) - PRECISION_MS for message in timed)
    return {
        "early": sum(one < 0 for one in late),
        "twice": len(received) - len({message.body[:8] for message, _ in received}),
        "never_waited": len(received) - len(timed),
        **{f"late_ms_{name}": round(value, 1) for name, value in spread(late)},
        **{f"behind_slot_ms_{name}": round(value, 1) for name, value in spread(behind)},
    }


if __name__ == "__main__":
    main()
