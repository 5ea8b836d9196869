"""Verified ranges, compared with a set of bytes."""

import random

from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges


def test_ranges_against_a_set_of_bytes() -> None:
    """In any order of additions, exactly the added bytes are covered, in disjoint ranges that are not adjacent."""
    choose = random.Random(4)
    for _ in range(200):
        verified = VerifiedRanges()
        verified.tail = 100
        known = set(range(100, 130))
        for _ in range(choose.randrange(30)):
            begin = choose.randrange(100)
            end = begin + choose.randrange(1, 12)
            verified.add(begin, end)
            known |= set(range(begin, end))
            for probe in range(0, 110, 3):
                covered = verified.covers(probe, probe + 4)
                assert covered == (set(range(probe, probe + 4)) <= known), (probe, verified)
        runs = sum(at in known and at - 1 not in known for at in range(131))
        statistics = verified.statistics()
        assert statistics.ranges + 1 == runs
        assert statistics.bytes == len([at for at in known if at < statistics.tail])


def test_consecutive_reads_are_one_range() -> None:
    """A consumer that catches up leaves one range, and none once it has reached the tail."""
    verified = VerifiedRanges()
    verified.tail = 1_000
    for at in range(200, 900, 100):
        verified.add(at, at + 100)
        assert verified.statistics().ranges == 1
    verified.add(900, 1_000)
    assert (verified.statistics().ranges, verified.tail) == (0, 200)
    assert repr(verified) == "<VerifiedRanges ranges=0 tail=200>"


def test_the_list_is_bounded() -> None:
    """If there are too many ranges, the first ones are dropped, and only have to be checked again."""
    verified = VerifiedRanges(most_ranges=10)
    verified.tail = 10_000
    for at in range(0, 1_000, 10):
        verified.add(at, at + 5)
    assert verified.statistics().ranges == 10
    assert not verified.covers(0, 5)
    assert verified.covers(990, 995)
