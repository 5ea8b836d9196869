"""Thousands of unusual requests to a daemon that is killed and started: normal clients lose nothing."""

import os
from pathlib import Path
from random import Random
from typing import Final

import pytest

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.attack.accounts import GENERATIONS
from tests.attack.arena import Arena
from tests.attack.generators import CONFIGURING, MUTATIONS, Generator, MutatedRequest, SigningGenerator, bases
from tests.attack.normal_clients import KEPT, LATER
from tests.attack.run import SESSIONS, run
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.rounds import rounds

REQUESTS: Final = int(os.environ.get("SKYLARK_ATTACKS", "100000"))
SEEDS: Final = 4
ACCESS_REQUESTS: Final = int(os.environ.get("SKYLARK_ACCESS_ATTACKS", "16000"))


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(SEEDS))
def test_guarantees_hold_under_attack(tmp_path: Path, seed: int) -> None:
    """No acknowledged message is missing, no file changed, no traceback, memory bounded. SKYLARK_ATTACKS: the
    number."""
    outcome = run(seed, REQUESTS // SEEDS, tmp_path)
    print(f"seed {seed}: p99 {outcome.p99_ms:.1f} ms, {outcome.requests / outcome.seconds:.0f} requests/s")
    assert outcome.acknowledged
    assert not outcome.findings, "\n".join(outcome.findings[:20])


@pytest.mark.crash
def test_a_run_with_very_few_requests_checks_all_guarantees(tmp_path: Path) -> None:
    """The first exchange of the normal client already has a delayed message and a transaction."""
    outcome = run(0, SESSIONS, tmp_path)
    assert outcome.acknowledged >= SESSIONS
    assert not outcome.findings, "\n".join(outcome.findings[:20])


@pytest.mark.crash
@pytest.mark.parametrize("access", list(GENERATIONS))
def test_guarantees_hold_under_attack_with_access_control(tmp_path: Path, access: str) -> None:
    """The same, and: callers without the right are refused, change nothing, and read nothing of normal clients.

    SKYLARK_ACCESS_ATTACKS: the number.
    """
    outcome = run(SEEDS, ACCESS_REQUESTS // len(GENERATIONS), tmp_path, access=access)
    print(f"{access}: p99 {outcome.p99_ms:.1f} ms, {outcome.requests / outcome.seconds:.0f} requests/s")
    assert outcome.acknowledged
    assert not outcome.findings, "\n".join(outcome.findings[:20])


@pytest.mark.daemon
def test_every_served_request_code_is_attacked(tmp_path: Path) -> None:
    """Each code that the broker or the name server supports is attacked."""
    served = set[int]()
    with Arena(tmp_path) as arena:
        for connect in (arena.client, arena.namesrv_client):
            for code in RequestCode:
                client = connect(WAIT_LIMIT_S)
                if client.call(code).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    served.add(code)
    assert len(served) > 50
    assert served - bases().keys() == set()


@pytest.mark.parametrize("kind", [Generator, SigningGenerator])
def test_a_seed_gives_the_same_requests(kind: type[Generator]) -> None:
    """Runs can be repeated: the requests depend on the seed only."""
    first, second, other = kind(7), kind(7), kind(8)
    data = [first.request() for _ in range(500)]
    assert data == [second.request() for _ in range(500)]
    assert data != [other.request() for _ in range(500)]


def test_no_request_names_topics_of_normal_clients() -> None:
    """Without access control, requests never concern topics of normal clients: no frame contains one of their names."""
    generator = Generator(0)
    for _ in range(rounds(20_000)):
        data = generator.request().data
        assert KEPT.encode() not in data
        assert LATER.encode() not in data


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_each_mutation_changes_requests(mutate: object) -> None:
    """Every mutation changes a number of requests."""
    rng = Random(0)
    assert callable(mutate)
    changed = 0
    for code, of_code in sorted(bases().items()):
        if code in CONFIGURING:
            continue
        for base in of_code:
            one = MutatedRequest(code, dict(base.ext), base.body)
            before = repr(vars(one))
            mutate(rng, one)
            changed += repr(vars(one)) != before
    assert changed > 10
