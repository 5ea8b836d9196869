"""Token buckets: exact at their edges, and a bounded table."""

import pytest

from skylarkmq.broker.access.token_buckets import NANOS, Kind, Meters, TokenBucket

MS = 1_000_000


def meters(requests: int = 0, bytes_in: int = 0, bytes_out: int = 0, burst_ms: int = 1_000, most: int = 100) -> Meters:
    made = Meters(most)
    made.configure((requests, bytes_in, bytes_out), burst_ms)
    return made


def test_a_full_bucket_permits_its_capacity_and_not_one_token_more() -> None:
    """Ten tokens at once, and the eleventh after a tenth of a second."""
    bucket = TokenBucket(10, 10, 0)
    for _ in range(10):
        assert bucket.wait_ns(1) == 0
        bucket.take(1)
    assert bucket.wait_ns(1) == 100 * MS
    bucket.fill(100 * MS - 1)
    assert bucket.wait_ns(1) == 1
    bucket.fill(100 * MS)
    assert bucket.wait_ns(1) == 0


def test_a_bucket_never_holds_more_than_its_capacity() -> None:
    """After a day without use it permits one burst."""
    bucket = TokenBucket(10, 5, 0)
    bucket.fill(86_400 * NANOS)
    assert bucket.tokens == 5


def test_tokens_taken_in_advance_make_later_requests_wait_in_order() -> None:
    """Three requests that reserve their tokens are due one after another."""
    bucket = TokenBucket(10, 1, 0)
    waits = []
    for _ in range(3):
        waits.append(bucket.wait_ns(1))
        bucket.take(1)
    assert waits == [0, 100 * MS, 200 * MS]


def test_a_request_above_the_capacity_is_permitted_by_a_full_bucket() -> None:
    """A message of 4 MiB passes a quota of 100 kB/s, and pays with the time after it."""
    bucket = TokenBucket(100_000, 20_000, 0)
    assert bucket.wait_ns(4_000_000) == 0
    bucket.take(4_000_000)
    assert bucket.wait_ns(1) == -(-(4_000_000 - 20_000 + 1) * NANOS // 100_000)


@pytest.mark.parametrize("rate", [3, 7, 999_983])
def test_a_rate_that_does_not_divide_a_second_is_exact_over_a_day(rate: int) -> None:
    """Nothing is rounded away in many small steps."""
    bucket = TokenBucket(rate, rate, 0)
    bucket.take(rate)
    taken = 0
    for step in range(1, 10_001):
        bucket.fill(step * 8_640_001)
        taken += bucket.tokens
        bucket.take(bucket.tokens)
    assert taken == 10_000 * 8_640_001 * rate // NANOS


def test_a_quota_of_less_than_a_request_per_burst_permits_single_requests() -> None:
    """The capacity is at least one token."""
    assert meters(requests=1, burst_ms=10).filled("a", 0).wait_ns((1, 0, 0)) == (0, Kind.REQUESTS)


def test_the_longest_wait_names_its_quota() -> None:
    """Requests and bytes are separate buckets."""
    meter = meters(requests=10, bytes_in=100).filled("a", 0)
    meter.take((10, 300, 0))
    assert meter.wait_ns((1, 1, 1)) == (2_010 * MS, Kind.BYTES_IN)


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([10] * 5, 5), ([10] * 6, 5), ([50, 51], 1), ([50, 50], 2), ([101], 0), ([100], 1), ([1, 200], 1), ([], 0)],
)
def test_a_run_ends_where_a_quota_does(sizes: list[int], count: int) -> None:
    """Five requests and 100 bytes are there; a bucket that is not full permits no request above its capacity."""
    made = meters(requests=10, bytes_in=200)
    meter = made.filled("a", 0)
    meter.take((5, 100, 0))
    assert meter.fitting(sizes) == count


def test_a_full_bucket_permits_one_large_request_of_a_run() -> None:
    """The requests after it wait."""
    assert meters(bytes_in=100).filled("a", 0).fitting([500, 1, 1]) == 1


def test_nothing_fits_until_bytes_sent_are_paid() -> None:
    """A run begins only with at least one token for its responses."""
    meter = meters(bytes_out=100).filled("a", 0)
    meter.take((0, 0, 100))
    assert meter.fitting([1]) == 0
    meter.fill(10 * MS)
    assert meter.fitting([1]) == 1


def test_the_table_drops_the_least_recently_used_key() -> None:
    """An attacker with many addresses cannot make it grow; keys that are full again lose nothing."""
    made = meters(requests=10, most=2)
    made.filled("a", 0).take((10, 0, 0))
    made.filled("b", 0)
    made.filled("a", 1)
    made.filled("c", 2)
    assert made.statistics().keys == 2
    assert made.filled("a", 2).wait_ns((1, 0, 0))[0] > 0
    assert made.statistics().evicted == 0
    made.filled("d", 3)
    made.filled("e", 4)
    assert (made.statistics().keys, made.statistics().evicted) == (2, 1)


def test_a_changed_rate_fills_all_buckets_and_the_same_rate_does_not() -> None:
    """A setting that is written again without a change forgives nothing."""
    made = meters(requests=10)
    made.filled("a", 0).take((10, 0, 0))
    made.configure((10, 0, 0), 1_000)
    assert made.filled("a", 0).wait_ns((1, 0, 0))[0] == 100 * MS
    made.configure((20, 0, 0), 1_000)
    assert made.filled("a", 0).wait_ns((1, 0, 0))[0] == 0
