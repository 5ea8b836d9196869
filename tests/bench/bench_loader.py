"""Cost of mqbench's loader itself: CPU per message, against a sink that stores nothing.

    python -m tests.bench.bench_loader                         # 256 x 4 in flight, 1 KiB, the best of 5 rounds
    python -m tests.bench.bench_loader --in-flight 16 --rounds 9

The sink is a separate process; its response to each frame differs only in the opaque. The figure is user and system
time of this process, including the kernel's half of a send over the loopback address.

Budget: 1 us per message at 256 x 4 on an idle machine.
"""

import argparse
import multiprocessing
import os
import selectors
import socket
from multiprocessing.connection import Connection
from typing import Final

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.runs import produce
from skylarkmq.clients.mqbench.workloads import Workload

READ_BYTES: Final = 256 * 1024
MARK: Final = b'"opaque":'
HEADER: Final = (
    b'{"code":0,"extFields":{"queueId":"0","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F0000000000000000","queueOffset":"0"},"flag":1,"language":"JAVA",'
    b'"opaque":%b,"serializeTypeCurrentRPC":"JSON","version":479}'
)
RESPONSE: Final = (len(HEADER) + 12).to_bytes(4, "big") + (len(HEADER) + 8).to_bytes(4, "big") + HEADER


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=256, help="per connection")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=sink, args=(theirs,), daemon=True).start()
    workload = Workload(
        connections=options.connections, in_flight=options.in_flight, seconds=options.seconds, warmup_s=0.2
    )
    brokers = [Broker("sink", f"127.0.0.1:{ours.recv()}")]
    rounds = []
    for _ in range(options.rounds):
        times: list[tuple[float, float]] = []
        figures = produce(workload, brokers, at_edge=lambda into=times: into.append(os.times()[:2]))  # type: ignore[misc]
        rounds.append(tuple((after - before) / figures.messages * 1e6 for before, after in zip(*times, strict=True)))
        print(f"{figures.rate:10,.0f}/s  user {rounds[-1][0]:.2f} us  system {rounds[-1][1]:.2f} us")
    print(f"least: {min(map(sum, rounds)):.2f} us of CPU per message")


def sink(pipe: Connection) -> None:
    """Send the port, then respond to every frame, forever."""
    with socket.create_server(("127.0.0.1", 0)) as server, selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ, None)
        pipe.send(server.getsockname()[1])
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    selector.register(server.accept()[0], selectors.EVENT_READ, bytearray())
                elif not response(key.fileobj, key.data):  # type: ignore[arg-type]
                    selector.unregister(key.fileobj)


def response(connected: socket.socket, rest: bytearray) -> bool:
    """Read, and respond to whole frames; return False at the end of the stream."""
    data = connected.recv(READ_BYTES)
    rest += data
    at, responses = 0, []
    while len(rest) - at >= 4:
        end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
        if end > len(rest):
            break
        opaque = rest.index(MARK, at) + len(MARK)
        responses.append(RESPONSE % rest[opaque : opaque + 10])
        at = end
    del rest[:at]
    connected.sendall(b"".join(responses))
    return bool(data)


if __name__ == "__main__":
    main()
