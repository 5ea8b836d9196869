"""The rate of a transfer: bytes of the last second, and what the current second allows."""

from skylarkmq.broker.ha.classic.rate import TransferRate


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_whole_second() -> None:
    """A second without bytes makes it 0 again."""
    now_s = Seconds()
    rate = TransferRate(now_s, None)
    rate.add(1000)
    assert rate.bytes_per_second == 0
    now_s.now += 1
    assert rate.bytes_per_second == 1000
    now_s.now += 1
    assert rate.bytes_per_second == 0
    rate.add(5)
    now_s.now += 10
    assert rate.bytes_per_second == 0


def test_a_limit_allows_its_bytes_in_each_second() -> None:
    """Without a limit there is no allowance to compute; with one the next second allows everything again."""
    now_s = Seconds()
    assert TransferRate(now_s, None).allowance is None
    rate = TransferRate(now_s, 100)
    rate.add(60)
    assert rate.allowance == 40
    rate.add(70)
    assert rate.allowance == 0
    now_s.now += 0.75
    assert rate.wait_s == 0.25
    now_s.now += 0.25
    assert rate.allowance == 100
