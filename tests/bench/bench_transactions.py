"""Cost of transactions: ends per second, the broker's CPU per end, and checks of many open transactions.

    python -m tests.bench.bench_transactions                         # 50,000 transactions of 1 KiB, 100,000 open ones
    python -m tests.bench.bench_transactions --sync --open 0         # SYNC_FLUSH, ends only
    python -m tests.bench.bench_transactions --window 1              # one transaction in flight

A fresh `mqbroker` runs as a separate process. First, transactions are committed, a window of them at a time: half
messages and their responses, then ends and theirs. Then half messages stay open: at first they are too young for checks
(`idle`); then each is checked in every round, and its producer reads the checks without responding. CPU is user +
system time of the broker (/proc). At the same time, another client requests a queue's end offset, one request at a
time: its longest wait is an upper bound of how long the event loop was blocked.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from skylarkmq.protocol.codes import RequestCode, SystemTopic
from tests.bench.bench_send import BrokerProcess, call, create_topic
from tests.harness.raw import RawClient, frame, texts

TOPIC: Final = "BenchTransactions"
GROUP: Final = "bench-transactions"
INTERVAL_S: Final = 5.0
ROUNDS: Final = 3
YOUNG_MS: Final = 1_000_000


def main() -> None:
    """Run the benchmark and print its figures."""
    options = parse_arguments()
    settings = {
        "flushDiskType": "SYNC_FLUSH" if options.sync else "ASYNC_FLUSH",
        "transactionTimeOut": YOUNG_MS,
        "transactionCheckInterval": int(INTERVAL_S * 1000),
        "transactionCheckMax": 1_000_000,
    }
    with tempfile.TemporaryDirectory(prefix="bench-transactions-", dir=options.directory) as directory:
        broker = BrokerProcess(Path(directory), settings)
        try:
            call(broker.port, create_topic(1, TOPIC))
            figures = committed(broker, options)
            if options.open:
                figures |= left_open(broker, options)
        finally:
            broker.stop()
    print(json.dumps(figures) if options.json else "\n".join(f"{name:36} {value}" for name, value in figures.items()))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=50_000)
    parser.add_argument("--window", type=int, default=256, help="transactions in flight")
    parser.add_argument("--open", type=int, default=100_000, help="half messages that stay open")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--directory", help="directory of the temporary store")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


class Pipeline(RawClient):
    """A connection with many requests in flight."""

    def call_all(self, code: int, requests: list[tuple[dict[str, object], bytes]]) -> list[dict[str, Any]]:
        """Return the headers of all responses, in the order of the requests."""
        frames = [
            frame({"code": code, "opaque": at, "extFields": texts(ext)}, body)
            for at, (ext, body) in enumerate(requests)
        ]
        self._socket.sendall(b"".join(frames))
        responses = sorted((self._read_frame()[0] for _ in frames), key=lambda header: header["opaque"])
        assert {response["code"] for response in responses} <= {0}, responses[0]
        return responses


def halves(first: int, count: int, body: bytes) -> list[tuple[dict[str, object], bytes]]:
    """Return half messages as send requests."""
    now_ms = int(time.time() * 1000)
    header = {"a": GROUP, "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": now_ms, "h": 0, "j": 0}
    of_all = f"TRAN_MSG\x01true\x02WAIT\x01true\x02PGROUP\x01{GROUP}\x02"
    return [
        (header | {"i": f"KEYS\x01k{n}\x02UNIQ_KEY\x01{n:032X}\x02{of_all}"}, body) for n in range(first, first + count)
    ]


def committed(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Run transactions from begin to end."""
    body = os.urandom(options.body // 2).hex().encode()
    cpu_s, began = broker.cpu_s(), time.monotonic()
    with Pipeline("127.0.0.1", broker.port, timeout=60) as client:
        for first in range(0, options.transactions, options.window):
            count = min(options.window, options.transactions - first)
            responses = client.call_all(RequestCode.SEND_MESSAGE_V2, halves(first, count, body))
            client.call_all(
                RequestCode.END_TRANSACTION, [(end_of(response["extFields"]), b"") for response in responses]
            )
    took_s, cpu_s = time.monotonic() - began, broker.cpu_s() - cpu_s
    return {
        "commits_per_second": round(options.transactions / took_s),
        "cpu_us_per_transaction": round(cpu_s / options.transactions * 1e6, 1),
    }


def end_of(sent: dict[str, str]) -> dict[str, object]:
    """Return the commit of a half message, from the response to it."""
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": sent["queueOffset"],
        "commitLogOffset": int(sent["msgId"][-16:], 16),
        "commitOrRollback": 8,
        "msgId": sent["transactionId"],
    }


def left_open(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Send half messages that stay open."""
    body = os.urandom(options.body // 2).hex().encode()
    with Pipeline("127.0.0.1", broker.port, timeout=60) as client:
        for first in range(0, options.open, options.window):
            client.call_all(RequestCode.SEND_MESSAGE_V2, halves(first, options.window, body))
        beat = {"clientID": "bench", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        client.call(RequestCode.HEART_BEAT, body=json.dumps(beat).encode())
        figures: dict[str, object] = {"open_half_messages": options.open}
        figures |= watched(broker, "idle", 2 * INTERVAL_S, None)
        call_config(broker.port, b"transactionTimeOut=1\n")
        return figures | watched(broker, "asking", ROUNDS * INTERVAL_S, client)


def watched(broker: BrokerProcess, kind: str, seconds: float, producer: Pipeline | None) -> dict[str, object]:
    """Measure the broker without load for this time."""
    ending = threading.Event()
    questions = [0]

    def read() -> None:
        assert producer is not None
        while not ending.is_set():
            producer._read_frame()
            questions[0] += 1

    if producer is not None:
        threading.Thread(target=read, daemon=True).start()
    cpu_s, requests = broker.cpu_s(), 0
    longest_s, end = 0.0, time.monotonic() + seconds
    with RawClient("127.0.0.1", broker.port, timeout=60) as client:
        while (now := time.monotonic()) < end:
            client.call(RequestCode.GET_MAX_OFFSET, {"topic": SystemTopic.TRANSACTION_OP, "queueId": 0})
            longest_s = max(longest_s, time.monotonic() - now)
            requests += 1
            time.sleep(0.005)
    cpu_s = broker.cpu_s() - cpu_s
    ending.set()
    figures: dict[str, object] = {
        f"{kind}_cpu_percent_of_a_core": round(cpu_s / seconds * 100, 1),
        f"{kind}_longest_wait_ms": round(longest_s * 1000, 1),
    }
    if producer is not None:
        figures[f"{kind}_questions"] = questions[0]
        figures[f"{kind}_cpu_us_per_question"] = round(cpu_s / max(questions[0], 1) * 1e6, 1)
    return figures


def call_config(port: int, text: bytes) -> None:
    """Change settings of the running broker."""
    with RawClient("127.0.0.1", port) as client:
        assert client.call(RequestCode.UPDATE_BROKER_CONFIG, body=text).code == 0


if __name__ == "__main__":
    main()
