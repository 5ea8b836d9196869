"""Partial frames: the limit at its edge, the queue, and the favored connection; times are arguments, without a
clock."""

import pytest

from skylarkmq.broker.remoting.partial_frames import SMALL_PIECE, STEP_S, PartialFrames, PartialFramesConfig

LIMIT = 100_000
RATE = 1_000
SLOW_S = 5.0


class FrameSource:
    """A connection that is read from until it has to wait."""

    def __init__(self, frames: PartialFrames, peer: str = "a", host: str = "h") -> None:
        self._frames = frames
        self.peer = peer
        self.host = host
        self.ready_bytes = 0
        self.paused = False
        self.partial_frame_bytes = 0
        self.is_paused_by_broker = False
        self.reads = True
        self.is_open = True

    def pause_for_memory(self) -> None:
        self.reads = False

    def try_resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.is_open = False

    def receive(self, size: int, *, is_new: bool = False, now_s: float = 0.0) -> None:
        """Receive the frame up to `size` bytes."""
        self._frames.record_read(self, size, now_s, is_new=is_new)


@pytest.fixture
def frames() -> PartialFrames:
    return PartialFrames(
        PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=100, min_rate=RATE, slow_s=SLOW_S), lambda: None
    )


def sources(frames: PartialFrames, count: int) -> list[FrameSource]:
    return [FrameSource(frames, f"{number}") for number in range(count)]


def test_no_connection_waits_up_to_the_limit(frames: PartialFrames) -> None:
    """The limit itself is allowed; one byte more makes a connection wait, unless it is the only one."""
    one, other = sources(frames, 2)
    one.receive(LIMIT - SMALL_PIECE)
    other.receive(SMALL_PIECE)
    assert (frames.bytes, one.reads, other.reads) == (LIMIT, True, True)
    assert frames.statistics().waiting == 0


def test_above_the_limit_one_connection_continues_and_the_others_wait(frames: PartialFrames) -> None:
    """The first connection that reaches the limit is favored, so that its frame is completed; the next ones are
    queued."""
    one, two, three = sources(frames, 3)
    one.receive(LIMIT)
    two.receive(SMALL_PIECE)
    assert two.reads  # favored
    three.receive(SMALL_PIECE)
    one.receive(LIMIT + 1)
    assert (one.reads, two.reads, three.reads) == (False, True, False)
    assert [frames.is_waiting(each) for each in (one, two, three)] == [True, False, True]
    two.receive(10 * SMALL_PIECE)
    assert two.reads


def test_small_pieces_never_wait(frames: PartialFrames) -> None:
    """Peers that send messages of usual size are not affected by those that fill the memory."""
    one, two, normal = sources(frames, 3)
    one.receive(LIMIT + 1)
    two.receive(LIMIT)
    normal.receive(SMALL_PIECE - 1)
    assert (one.reads, two.reads, normal.reads) == (True, False, True)


def test_a_complete_frame_frees_memory(frames: PartialFrames) -> None:
    """Below the limit all waiting connections continue; above it, the next one is favored."""
    one, two, three = sources(frames, 3)
    one.receive(LIMIT)
    two.receive(LIMIT)
    three.receive(LIMIT)
    assert (one.reads, two.reads, three.reads) == (True, True, False)
    two.receive(0, is_new=True)
    assert (frames.bytes, three.reads) == (2 * LIMIT, True)  # favored, one after the other
    three.receive(0, is_new=True)
    assert (frames.bytes, frames.statistics().waiting) == (LIMIT, 0)


def test_the_queue_is_served_in_order(frames: PartialFrames) -> None:
    """The connection queued first is favored first."""
    first, *others = sources(frames, 4)
    first.receive(2 * LIMIT)
    for each in others:
        each.receive(LIMIT)
    assert [each.reads for each in others] == [False, False, False]
    for number, each in enumerate(others):
        (first, *others)[number].receive(0, is_new=True)
        assert each.reads
        assert not any(later.reads for later in others[number + 1 :])


def test_the_favor_ends_with_the_frame(frames: PartialFrames) -> None:
    """A connection that begins another large frame is queued again."""
    one, two = sources(frames, 2)
    one.receive(2 * LIMIT)
    two.receive(LIMIT)
    assert (one.reads, two.reads) == (True, False)
    one.receive(LIMIT, is_new=True)
    assert (one.reads, two.reads) == (False, True)


def test_a_closed_connection_frees_its_bytes(frames: PartialFrames) -> None:
    """Whether it was queued or favored."""
    one, two, three = sources(frames, 3)
    one.receive(2 * LIMIT)
    two.receive(LIMIT)
    three.receive(LIMIT)
    frames.forget(two)
    assert (frames.bytes, frames.is_waiting(two)) == (3 * LIMIT, False)
    frames.forget(one)
    assert (frames.bytes, three.reads) == (LIMIT, True)
    frames.forget(three)
    frames.forget(three)
    assert frames.bytes == 0


def stepped(frames: PartialFrames, from_s: float, to_s: float) -> None:
    """Run every step between two times."""
    for number in range(round((to_s - from_s) / STEP_S) + 1):
        frames.step(from_s + number * STEP_S)


@pytest.mark.parametrize("count", [18, 200])
def test_slow_peers_do_not_delay_a_normal_one(frames: PartialFrames, count: int) -> None:
    """The favor moves at the next step to the connection that has bytes ready, however many are queued before it."""
    slow = sources(frames, count)
    for each in slow:
        each.receive(LIMIT // 4)
    normal = FrameSource(frames, "normal")
    normal.receive(SMALL_PIECE)
    normal.ready_bytes = 60_000
    assert frames.is_waiting(normal)
    frames.step(STEP_S)
    assert normal.reads
    assert all(each.is_open for each in slow[:4])


def test_a_slow_peer_loses_the_favor_to_one_with_more_to_read(frames: PartialFrames) -> None:
    """Progress between two steps is not enough to keep it: the favored connection must have bytes ready if others
    have."""
    slow, normal = sources(frames, 2)
    slow.receive(2 * LIMIT)
    normal.receive(SMALL_PIECE)
    normal.ready_bytes = 50_000
    slow.receive(2 * LIMIT + 1)
    frames.step(STEP_S)
    assert (slow.reads, normal.reads) == (False, True)


def test_slow_connections_are_closed_after_slow_s(frames: PartialFrames, caplog: pytest.LogCaptureFixture) -> None:
    """Below min_rate for slow_s, not earlier, while another connection has bytes ready; one log line per second."""
    slow = sources(frames, 10)
    for each in slow:
        each.receive(LIMIT // 8, now_s=100.0)
    normal = FrameSource(frames, "normal")
    normal.receive(SMALL_PIECE, now_s=100.0)
    normal.ready_bytes = SMALL_PIECE
    stepped(frames, 100.0, 100.0 + SLOW_S - STEP_S)
    assert all(each.is_open for each in slow)
    frames.step(100.0 + SLOW_S)
    assert not any(each.is_open for each in slow)
    assert (normal.is_open, frames.statistics().closed, frames.bytes) == (True, 10, SMALL_PIECE)
    assert caplog.text.count("closing connection") == 1
    assert "reason=slow" in caplog.text


def test_a_connection_at_the_minimum_rate_is_not_closed(frames: PartialFrames) -> None:
    """Whether it is read from or its bytes wait in the socket."""
    reader, waiter, blocker = sources(frames, 3)
    reader.receive(2 * LIMIT)
    waiter.receive(SMALL_PIECE)
    blocker.receive(SMALL_PIECE)
    blocker.ready_bytes = 50_000
    for second in range(1, 21):
        reader.receive(2 * LIMIT + second * RATE, now_s=float(second))
        reader.ready_bytes = 1
        waiter.ready_bytes = second * RATE
        frames.step(float(second))
    assert all(each.is_open for each in (reader, waiter, blocker))


def test_no_connection_is_closed_while_no_other_is_delayed(frames: PartialFrames) -> None:
    """A slow connection alone, or several slow ones, stay until the idle timeout."""
    lone = FrameSource(frames)
    lone.receive(2 * LIMIT)
    stepped(frames, 0.0, 200.0)
    other = FrameSource(frames, "b")
    other.receive(SMALL_PIECE, now_s=200.0)
    stepped(frames, 200.0, 300.0)
    assert (lone.is_open, other.is_open) == (True, True)


def test_a_connection_paused_by_the_broker_is_not_slow(frames: PartialFrames) -> None:
    """A connection whose peer does not read its responses is slow."""
    broker_paused, paused, normal = sources(frames, 3)
    broker_paused.receive(2 * LIMIT)
    paused.receive(SMALL_PIECE)
    normal.receive(SMALL_PIECE)
    broker_paused.is_paused_by_broker = paused.paused = True
    paused.ready_bytes, normal.ready_bytes = 90_000, SMALL_PIECE
    frames.step(STEP_S)
    assert normal.reads
    normal.ready_bytes = 0
    third = FrameSource(frames, "c")
    third.receive(SMALL_PIECE, now_s=STEP_S)
    third.ready_bytes = SMALL_PIECE
    stepped(frames, STEP_S, 2 * SLOW_S)
    assert (broker_paused.is_open, paused.is_open) == (True, False)


def test_a_host_has_a_share() -> None:
    """Connections of one host wait above its share, while those of another continue."""
    frames = PartialFrames(PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=50), lambda: None)
    large = [FrameSource(frames, f"{number}", "1.1.1.1") for number in range(4)]
    for each in large:
        each.receive(LIMIT // 5)
    normal = FrameSource(frames, "normal", "2.2.2.2")
    normal.receive(LIMIT // 10)
    assert [each.reads for each in large] == [True, True, True, False]
    assert normal.reads
    large[0].receive(0, is_new=True)
    assert not large[3].reads
    large[1].receive(0, is_new=True)
    assert all(each.reads for each in large)
    frames.forget(normal)
    for each in large:
        frames.forget(each)
    assert (frames.bytes, frames._hosts) == (0, {})


def test_a_host_within_its_share_is_favored_first() -> None:
    """Even with fewer bytes ready."""
    frames = PartialFrames(PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=50), lambda: None)
    first, large = FrameSource(frames, "1", "1.1.1.1"), FrameSource(frames, "2", "1.1.1.1")
    first.receive(2 * LIMIT)
    large.receive(LIMIT // 2)
    normal = FrameSource(frames, "normal", "2.2.2.2")
    normal.receive(SMALL_PIECE)
    large.ready_bytes, normal.ready_bytes = 80_000, SMALL_PIECE
    frames.step(STEP_S)
    assert (first.reads, large.reads, normal.reads) == (False, False, True)


def test_memory_is_bounded_when_favors_move_on() -> None:
    """Above the headroom the connections with the oldest progress are closed."""
    frames = PartialFrames(PartialFramesConfig(LIMIT, LIMIT // 2), lambda: None)
    many = sources(frames, 100)
    now_s = 0.0
    for each in many:
        now_s += STEP_S
        each.receive(LIMIT // 5, now_s=now_s)
        each.ready_bytes = LIMIT
        frames.step(now_s)
        each.ready_bytes = 0
    assert frames.bytes <= LIMIT * 3 // 2
    assert many[-1].is_open
    assert not many[0].is_open


def test_watch_is_called_when_the_first_connection_is_queued() -> None:
    """Steps are requested until no connection waits."""
    watched: list[str] = []
    frames = PartialFrames(PartialFramesConfig(LIMIT, LIMIT), lambda: watched.append("watch"))
    one, two = sources(frames, 2)
    one.receive(2 * LIMIT)
    assert (watched, frames.step_s) == ([], 0.0)
    two.receive(LIMIT)
    assert watched == ["watch"]
    assert frames.step_s >= STEP_S
    one.receive(0, is_new=True)
    assert frames.step_s == 0.0
