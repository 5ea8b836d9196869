"""Cost of verifying signatures: the broker's CPU per send, unsigned without access control and signed with it.

    python -m tests.bench.bench_signatures                            # 100 B and 1 KiB, 12 rounds of 2 s each
    python -m tests.bench.bench_signatures --body 100 --rounds 20
    python -m tests.bench.bench_signatures --access 5.3               # users and policies instead of plain_acl.yml
    SKYLARK_COMPILED=0 python -m tests.bench.bench_signatures         # without the compiled modules
    python -m tests.bench.bench_signatures --steps                    # the steps of a verification, in one process

Two fresh `mqbroker`s are loaded in turns, in the same way as in bench_send: one without access control, one that
verifies one account with the permission to publish. Printed: the medians of both, the median of the differences within
a round, and its 95 % interval (bootstrap). Budget: 3 us for sends of 100 B, compiled.

`--steps` prints the minimum time of each step in microseconds: reading the signed parts of a send that was decoded with
its frame, and the HMAC with each implementation that the standard library offers.
"""

import argparse
import hashlib
import hmac
import json
import os
import sys
import tempfile
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from timeit import repeat
from types import SimpleNamespace
from typing import Any, Final

from skylarkmq.broker.access.certificates import CertificateAccounts
from skylarkmq.broker.access.gate import Gate
from skylarkmq.broker.access.plain_acl.accounts import account_of
from skylarkmq.broker.access.plain_acl.control import PlainAclControl
from skylarkmq.broker.access.plain_acl.files import Rules
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol import hmac_sha1
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.compiled import variant
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.signature import Signed, SigningKey, python_signed_parts, signed_parts
from skylarkmq.protocol.stream import CommandDecoder
from tests.bench.bench_overload import CLIENTS, OPERATOR, access_settings
from tests.bench.bench_send import TOPIC, BrokerProcess, Client, call, run, send_frame

QUEUES: Final = 4
RUN: Final = 256
"""Sends of a read."""
RESAMPLES: Final = 4_000
USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": OPERATOR.access_key, "password": OPERATOR.secret_key}),
}
BUDGET_US: Final = 3.0
"""Of the median difference, for a body of 100 bytes, compiled."""


def main() -> int:
    """Run the benchmark; return 1 if the budget is exceeded."""
    options = parse_arguments()
    if options.steps:
        print(f"modules: {variant()}")
        for size in options.body:
            for name, us in steps(size).items():
                print(f"{size:6} B  {name:44} {us:6.2f} us")
        return 0
    figures = [measure(size, options) for size in options.body]
    if options.json:
        print(json.dumps(figures))
    else:
        for one in figures:
            print("  ".join(f"{name} {value}" for name, value in one.items()))
    return int(any(one["body"] == 100 and not one["within_budget"] for one in figures) and variant() == "compiled")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", type=int, nargs="+", default=[100, 1024], help="bytes")
    parser.add_argument("--access", choices=("4.9", "5.3"), default="4.9", help="access control of this RocketMQ")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round, for each broker")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=256, help="per connection")
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--directory", help="directory of the temporary stores")
    parser.add_argument("--steps", action="store_true", help="the steps of a verification instead")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    return parser.parse_args()


def measure(size: int, options: argparse.Namespace) -> dict[str, object]:
    """Load both brokers in turns; return the figures."""
    options = argparse.Namespace(**vars(options) | {"body": size})
    with loaded(options, None) as plain, loaded(options, CLIENTS) as signed:
        pairs = [(plain(), signed()) for _ in range(options.rounds)]
    differences = [after - before for before, after in pairs]
    low, high = interval(differences)
    added = median(differences)
    return {
        "body": size,
        "access": options.access,
        "modules": variant().split(":")[0],
        "plain_us": round(median(before for before, _ in pairs), 2),
        "signed_us": round(median(after for _, after in pairs), 2),
        "added_us": round(added, 2),
        "from_us": round(low, 2),
        "to_us": round(high, 2),
        "within_budget": added <= BUDGET_US,
    }


@contextmanager
def loaded(options: argparse.Namespace, credentials: Credentials | None) -> Iterator[Callable[[], float]]:
    """Yield a function that loads a broker for one round, and returns its CPU per message in microseconds."""
    with tempfile.TemporaryDirectory(prefix="bench-signatures-", dir=options.directory) as directory:
        settings: dict[str, object] = {"brokerFastFailureEnable": "false"}
        has_users = credentials is not None and options.access == "5.3"
        if credentials is not None:
            settings |= USERS if has_users else access_settings(Path(directory) / "conf")
        broker = BrokerProcess(Path(directory), settings, None if credentials is None else OPERATOR)
        if has_users:
            create_user(broker.port, CLIENTS)
        clients = [Client(broker.port, options, JSON, credentials) for _ in range(options.connections)]
        run(clients, 1.0)

        def round_() -> float:
            cpu_s, received = broker.cpu_s(), sum(client.responses for client in clients)
            run(clients, options.seconds)
            count = sum(client.responses for client in clients) - received
            if any(client.errors for client in clients):
                raise SystemExit("the broker refused sends")
            return (broker.cpu_s() - cpu_s) / count * 1e6

        try:
            yield round_
        finally:
            broker.stop()


def create_user(port: int, credentials: Credentials) -> None:
    """Create a user that may publish to the topic."""
    name, password = credentials.access_key, credentials.secret_key
    user = {"username": name, "password": password, "userType": "Normal", "userStatus": "enable"}
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
    acl = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
    for code, ext, body in (
        (RequestCode.AUTH_CREATE_USER, {"username": name}, user),
        (RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, acl),
    ):
        command = RemotingCommand.request(code, None, json.dumps(body).encode())
        command.ext = ext
        response = call(port, OPERATOR.signed_frame(encode_command(command)))
        if response["code"]:
            raise SystemExit(f"the broker refused {code.name}: {response}")


def interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median."""
    rng = Random(len(values))
    medians = sorted(median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


# ---------------------------------------------------------------------------------------------------------------- steps


def steps(size: int) -> dict[str, float]:
    """Return the microseconds of each step for a send with a body of `size` bytes."""
    frame = send_frame(7, 1, b"x" * size, JSON, CLIENTS)
    (command,) = CommandDecoder().feed_commands(memoryview(frame))
    body = bytes(command.body)
    signed = signed_parts(command)
    assert signed is not None
    key = SigningKey(CLIENTS.secret_key)
    assert key.has_signed(signed, body)
    unsigned_frame = send_frame(7, 1, b"x" * size, JSON)

    def general() -> None:
        command.detached()
        python_signed_parts(command)

    return {
        "signed_parts": least(lambda: signed_parts(command)),
        "signed_parts, general reader": least(general),
        "SigningKey.has_signed": least(lambda: key.has_signed(signed, body)),
        **{f"a send of a read, {name}": least(call, 5) / RUN for name, call in passes(size).items()},
        "signing a frame (client)": least(lambda: CLIENTS.signed_frame(unsigned_frame)),
        **{f"HMAC: {name}": least(call) for name, call in implementations(signed, body).items()},
    }


def passes(size: int) -> dict[str, Callable[[], object]]:
    """Return what a broker does with the sends of a read: decode them, and verify them in runs."""
    account = account_of(
        {"accessKey": CLIENTS.access_key, "secretKey": CLIENTS.secret_key, "topicPerms": [f"{TOPIC}=PUB"]}
    )
    files: Any = SimpleNamespace(rules=Rules(accounts={CLIENTS.access_key: account}))
    gate = Gate(PlainAclControl(files, CertificateAccounts(()), is_strict=True))
    connection: Any = SimpleNamespace(host="127.0.0.1", certificate_subject=None)
    plain, signed = [
        memoryview(b"".join(send_frame(n, n % QUEUES, random_body(size), JSON, key) for n in range(RUN)))
        for key in (None, CLIENTS)
    ]

    def verify() -> None:
        commands, at = CommandDecoder().feed_commands(signed), 0
        while at < RUN:
            checked = gate.admit_run(connection, commands, at)
            assert checked.refusal is None
            at = checked.admitted_end

    return {
        "unsigned: decoded": lambda: CommandDecoder().feed_commands(plain),
        "signed: decoded": lambda: CommandDecoder().feed_commands(signed),
        "signed: decoded, verified": verify,
    }


def random_body(size: int) -> bytes:
    """Return the hexadecimal digits of random bytes."""
    return os.urandom(size // 2).hex().encode()


def implementations(signed: Signed, body: bytes) -> dict[str, Callable[[], bytes]]:
    """Return the ways to compute the HMAC with a key that is known beforehand."""
    secret = CLIENTS.secret_key.encode()
    keyed = hmac.new(secret, digestmod="sha1")
    pads = [bytes(byte ^ pad for byte in secret.ljust(64, b"\0")) for pad in (0x36, 0x5C)]
    inner_state, outer_state = map(hashlib.sha1, pads)
    selected = hmac_sha1.keyed(secret)

    def copied() -> bytes:
        copy = keyed.copy()
        copy.update(signed.content)
        copy.update(body)
        return copy.digest()

    def two_states() -> bytes:
        inner, outer = inner_state.copy(), outer_state.copy()
        inner.update(signed.content)
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()

    def one_call() -> bytes:
        return hmac.digest(secret, signed.content + body, "sha1")

    found: dict[str, Callable[[], bytes]] = {
        "hmac.new, copied": copied,
        "two states of hashlib.sha1, copied": two_states,
        "hmac.digest": one_call,
    }
    for compute in found.values():
        assert b2a_base64(compute(), newline=False).decode() == signed.signature
    return {**found, "protocol.hmac_sha1, in base64": lambda: selected.signature(signed.content, body)}


def least(call: Callable[[], object], calls: int = 500, rounds: int = 50) -> float:
    """Return the minimum time of a call, in microseconds."""
    return min(repeat(call, number=calls, repeat=rounds)) / calls * 1e6


if __name__ == "__main__":
    sys.exit(main())
