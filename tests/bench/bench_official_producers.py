"""Two builds alternately under RocketMQ's own Java producers with bodies of mixed sizes.

    python -m tests.bench.bench_official_producers ../before --interpreted --rounds 10 --seconds 5

The loads of `tests.bench.builds` send messages of one size in one header layout, from frames encoded in advance, while
all free memory is taken. This load does neither, so it shows the value of an optimization for uniform sends to users.
Printed: sends/s, broker CPU per message, and the median ratio of this build to the other with its 95 % interval.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.builds import OTHER, THIS, interval
from tests.bench.peers.started import COMPILED, INTERPRETED, MAKERS, Started, add_build, started
from tests.interop.toolchain import java_driver

CLIENT: Final = "4.9.8"
SOURCE: Final = Path(__file__).resolve().parent / "producers" / "MixedProducer.java"
WARM_UP_S: Final = 5.0


def main() -> int:
    """Run the rounds and print the table."""
    options = parse_arguments()
    variant = INTERPRETED if options.interpreted else COMPILED
    MAKERS[THIS] = MAKERS[variant]
    add_build(OTHER, options.checkout.resolve(), variant)
    figures: dict[str, list[tuple[float, float]]] = {THIS: [], OTHER: []}
    with tempfile.TemporaryDirectory() as scratch:
        jars = java_driver(CLIENT) / "lib" / "*"
        subprocess.run(["javac", "-cp", jars, "-d", scratch, SOURCE], check=True)
        java = ["java", "-Xmx512m", "-cp", f"{scratch}:{jars}", "MixedProducer"]
        directory = Path(scratch)
        with started(THIS, directory) as this, started(OTHER, directory) as other:
            brokers = {THIS: this, OTHER: other}
            for name, broker in brokers.items():
                with brokers[OTHER if name == THIS else THIS].at_rest():
                    load(java, broker, WARM_UP_S, options.producers)
            for number in range(options.rounds):
                for name in (THIS, OTHER) if number % 2 else (OTHER, THIS):
                    with brokers[OTHER if name == THIS else THIS].at_rest():
                        brokers[name].wait_routed()
                        rate, cpu_us = load(java, brokers[name], options.seconds, options.producers)
                        figures[name].append((rate, cpu_us))
                        print(f"  {name:6} {rate:,.0f} sends/s {cpu_us:.2f} µs", flush=True)
    for index, title in enumerate(("sends/s", "broker CPU per message, µs")):
        mine, theirs = ([sample[index] for sample in figures[name]] for name in (THIS, OTHER))
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        low, high = interval(ratios)
        medians = f"other {median(theirs):,.2f}, this {median(mine):,.2f}"
        print(f"{title}: {medians}, ratio {median(ratios):.3f} ({low:.3f}-{high:.3f})")
    return 0


def load(java: list[str], broker: Started, seconds: float, producers: int) -> tuple[float, float]:
    """Run the producers; return sends per second and the broker's CPU per message in microseconds."""
    cpu_s = broker.cpu_s()
    commands = [[*java, broker.namesrv, str(seconds), str(number)] for number in range(producers)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    counts = [process.communicate()[0].split() for process in processes]
    sent, failed = (sum(int(count[at]) for count in counts) for at in (0, 1))
    if failed or not sent:
        raise RuntimeError(f"{failed} of {sent + failed} sends failed")
    return sent / seconds, 1e6 * (broker.cpu_s() - cpu_s) / sent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="the other build, installed in its .venv")
    parser.add_argument("--interpreted", action="store_true", help="both builds without compiled modules")
    parser.add_argument("--producers", type=int, default=2, help="Java processes, each with 256 sends in flight")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one load")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
