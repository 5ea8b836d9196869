"""Lateness and cost of delayed messages: a steady stream of them, compared with the same stream without a delay.

    python -m tests.bench.bench_delay                                  # 5,000 per second for 10 s, level 1 (1 s), 1 KiB
    python -m tests.bench.bench_delay --rate 20000 --seconds 5 --levels 1,2
    python -m tests.bench.bench_delay --sync                           # SYNC_FLUSH

A fresh `mqbroker` runs as a separate process; its topic has one queue, and a consumer waits there by long polling. The
stream runs first without delays, then with them. Lateness counts from the due time in the broker's own record (store
time in the schedule topic, plus the delay): to the store time in the real topic, and to the arrival at the consumer.
CPU is user + system time of the broker (/proc) for everything: send, delivery, pulls.

Budget: no message early; at most 100 ms late at 5,000 per second.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode
from tests.bench.bench_send import BrokerProcess, call, create_topic
from tests.bench.paced import PULL, TOPIC, Stream, arguments, show, spread
from tests.harness.raw import RawClient

DELAYS_MS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def main() -> None:
    """Run the benchmark and print its figures."""
    options = parse_arguments()
    settings = {"flushDiskType": "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH"}
    with tempfile.TemporaryDirectory(prefix="bench-delay-", dir=options.directory) as directory:
        broker = BrokerProcess(Path(directory), settings)
        try:
            call(broker.port, create_topic(1, TOPIC))
            plain = Stream(broker, options, ())
            delayed = Stream(broker, options, options.levels)
            figures = plain.run(0) | delayed.run(plain.sent)
            figures |= lateness(broker.port, delayed.received, options.levels)
        finally:
            broker.stop()
    figures["cpu_us_extra_per_delayed_message"] = round(
        float(str(figures["cpu_us_per_delayed_message"])) - float(str(figures["cpu_us_per_plain_message"])), 2
    )
    show(figures, options)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--levels", type=lambda text: tuple(map(int, text.split(","))), default=(1,), help="in turns")
    return parser.parse_args()


def lateness(port: int, received: Sequence[tuple[MessageExt, float]], levels: Sequence[int]) -> dict[str, object]:
    """Return the lateness in the topic and at the consumer; the numbers of early and of repeated messages."""
    dues = dict(due for level in set(levels) for due in dues_of(port, level))
    stored = sorted(message.store_timestamp - dues[message.body[:8]] for message, _ in received)
    arrived = sorted(at_ms - dues[message.body[:8]] for message, at_ms in received)
    return {
        "early": sum(late < 0 for late in stored),
        "twice": len(received) - len({message.body[:8] for message, _ in received}),
        **{f"stored_late_ms_{name}": round(value, 1) for name, value in spread(stored)},
        **{f"received_late_ms_{name}": round(value, 1) for name, value in spread(arrived)},
    }


def dues_of(port: int, level: int) -> Iterator[tuple[bytes, float]]:
    """Yield the first bytes of each body of a level, and its due time."""
    offset = 0
    where = PULL | {"topic": SystemTopic.SCHEDULE, "queueId": level - 1, "sysFlag": 4}
    with RawClient("127.0.0.1", port, timeout=30) as client:
        while True:
            response = client.call(RequestCode.PULL_MESSAGE, where | {"queueOffset": offset})
            if response.code:
                return
            for message in decode(response.body, check_body=False):
                yield message.body[:8], message.store_timestamp + DELAYS_MS[level - 1]
            offset = int(response.ext["nextBeginOffset"])


if __name__ == "__main__":
    main()
