"""Unfinished frames: the bound at its edge, the line, and who is favored; no clock but the times that are told."""

import pytest

from skylarkmq.broker.remoting.partial_frames import SMALL_PIECE, STEP_S, PartialFrames, PartialFramesConfig

LIMIT = 100_000
RATE = 1_000
SLOW_S = 5.0


class FrameSource:
    """A connection that is read from until it has to wait."""

    def __init__(self, books: PartialFrames, peer: str = "a", host: str = "h") -> None:
        self._books = books
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

    def say(self, size: int, *, is_new: bool = False, now_s: float = 0.0) -> None:
        """So much of a frame is here by now."""
        self._books.note(self, size, now_s, is_new=is_new)


@pytest.fixture
def books() -> PartialFrames:
    return PartialFrames(
        PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=100, min_rate=RATE, slow_s=SLOW_S), lambda: None
    )


def sources(books: PartialFrames, count: int) -> list[FrameSource]:
    return [FrameSource(books, f"{number}") for number in range(count)]


def test_up_to_the_limit_everybody_goes_on(books: PartialFrames) -> None:
    """The limit itself is within; one byte more makes whoever brought it wait, were it not alone."""
    one, other = sources(books, 2)
    one.say(LIMIT - SMALL_PIECE)
    other.say(SMALL_PIECE)
    assert (books.bytes, one.reads, other.reads) == (LIMIT, True, True)
    assert books.statistics().waiting == 0


def test_above_the_limit_one_goes_on_and_the_others_wait(books: PartialFrames) -> None:
    """The first to meet the limit is favored, so that something is finished; the next ones stand in line."""
    one, two, three = sources(books, 3)
    one.say(LIMIT)
    two.say(SMALL_PIECE)
    assert two.reads  # favored
    three.say(SMALL_PIECE)
    one.say(LIMIT + 1)
    assert (one.reads, two.reads, three.reads) == (False, True, False)
    assert [books.is_waiting(each) for each in (one, two, three)] == [True, False, True]
    two.say(10 * SMALL_PIECE)
    assert two.reads


def test_small_pieces_never_wait(books: PartialFrames) -> None:
    """Whoever sends messages of usual size does not notice those who fill the memory."""
    one, two, polite = sources(books, 3)
    one.say(LIMIT + 1)
    two.say(LIMIT)
    polite.say(SMALL_PIECE - 1)
    assert (one.reads, two.reads, polite.reads) == (True, False, True)


def test_a_finished_frame_makes_room(books: PartialFrames) -> None:
    """Below the limit all who waited go on; above it, the next one is favored."""
    one, two, three = sources(books, 3)
    one.say(LIMIT)
    two.say(LIMIT)
    three.say(LIMIT)
    assert (one.reads, two.reads, three.reads) == (True, True, False)
    two.say(0, is_new=True)
    assert (books.bytes, three.reads) == (2 * LIMIT, True)  # favored, one after the other
    three.say(0, is_new=True)
    assert (books.bytes, books.statistics().waiting) == (LIMIT, 0)


def test_the_line_is_served_in_order(books: PartialFrames) -> None:
    """First come, first favored."""
    first, *others = sources(books, 4)
    first.say(2 * LIMIT)
    for each in others:
        each.say(LIMIT)
    assert [each.reads for each in others] == [False, False, False]
    for number, each in enumerate(others):
        (first, *others)[number].say(0, is_new=True)
        assert each.reads
        assert not any(later.reads for later in others[number + 1 :])


def test_who_begins_the_next_large_frame_is_no_longer_favoured(books: PartialFrames) -> None:
    """One frame for one favor."""
    one, two = sources(books, 2)
    one.say(2 * LIMIT)
    two.say(LIMIT)
    assert (one.reads, two.reads) == (True, False)
    one.say(LIMIT, is_new=True)
    assert (one.reads, two.reads) == (False, True)


def test_who_is_gone_takes_its_bytes_along(books: PartialFrames) -> None:
    """From the line as well as from the favor."""
    one, two, three = sources(books, 3)
    one.say(2 * LIMIT)
    two.say(LIMIT)
    three.say(LIMIT)
    books.forget(two)
    assert (books.bytes, books.is_waiting(two)) == (3 * LIMIT, False)
    books.forget(one)
    assert (books.bytes, three.reads) == (LIMIT, True)
    books.forget(three)
    books.forget(three)
    assert books.bytes == 0


def stepped(books: PartialFrames, from_s: float, to_s: float) -> None:
    """Every step between two times."""
    for number in range(round((to_s - from_s) / STEP_S) + 1):
        books.step(from_s + number * STEP_S)


@pytest.mark.parametrize("count", [18, 200])
def test_slow_peers_do_not_delay_a_polite_one(books: PartialFrames, count: int) -> None:
    """The favor moves at the next step to the connection that has bytes ready, however many wait before it."""
    slow = sources(books, count)
    for each in slow:
        each.say(LIMIT // 4)
    polite = FrameSource(books, "polite")
    polite.say(SMALL_PIECE)
    polite.ready_bytes = 60_000
    assert books.is_waiting(polite)
    books.step(STEP_S)
    assert polite.reads
    assert all(each.is_open for each in slow[:4])


def test_a_dripping_peer_loses_the_favour_to_one_with_more_to_read(books: PartialFrames) -> None:
    """Progress between two steps is not enough to keep it: the holder must have bytes ready when others have."""
    drip, polite = sources(books, 2)
    drip.say(2 * LIMIT)
    polite.say(SMALL_PIECE)
    polite.ready_bytes = 50_000
    drip.say(2 * LIMIT + 1)
    books.step(STEP_S)
    assert (drip.reads, polite.reads) == (False, True)


def test_slow_connections_are_closed_after_seconds(books: PartialFrames, caplog: pytest.LogCaptureFixture) -> None:
    """After slow_s with less than min_rate, not before, while another connection has bytes ready; one line a second."""
    slow = sources(books, 10)
    for each in slow:
        each.say(LIMIT // 8, now_s=100.0)
    polite = FrameSource(books, "polite")
    polite.say(SMALL_PIECE, now_s=100.0)
    polite.ready_bytes = SMALL_PIECE
    stepped(books, 100.0, 100.0 + SLOW_S - STEP_S)
    assert all(each.is_open for each in slow)
    books.step(100.0 + SLOW_S)
    assert not any(each.is_open for each in slow)
    assert (polite.is_open, books.statistics().closed, books.bytes) == (True, 10, SMALL_PIECE)
    assert caplog.text.count("closing connection") == 1
    assert "reason=slow" in caplog.text


def test_fast_enough_is_not_slow(books: PartialFrames) -> None:
    """A connection at min_rate stays, whether it is read from or its bytes wait in the socket."""
    reader, waiter, blocker = sources(books, 3)
    reader.say(2 * LIMIT)
    waiter.say(SMALL_PIECE)
    blocker.say(SMALL_PIECE)
    blocker.ready_bytes = 50_000
    for second in range(1, 21):
        reader.say(2 * LIMIT + second * RATE, now_s=float(second))
        reader.ready_bytes = 1
        waiter.ready_bytes = second * RATE
        books.step(float(second))
    assert all(each.is_open for each in (reader, waiter, blocker))


def test_nothing_is_closed_while_no_other_is_delayed(books: PartialFrames) -> None:
    """Slow connections alone, and slow ones among themselves, stay until the idle timeout."""
    lone = FrameSource(books)
    lone.say(2 * LIMIT)
    stepped(books, 0.0, 200.0)
    other = FrameSource(books, "b")
    other.say(SMALL_PIECE, now_s=200.0)
    stepped(books, 200.0, 300.0)
    assert (lone.is_open, other.is_open) == (True, True)


def test_nobody_is_closed_for_what_it_was_not_let_do(books: PartialFrames) -> None:
    """A connection that the broker holds is not slow; one whose peer does not read its responses is."""
    held, paused, polite = sources(books, 3)
    held.say(2 * LIMIT)
    paused.say(SMALL_PIECE)
    polite.say(SMALL_PIECE)
    held.is_paused_by_broker = paused.paused = True
    paused.ready_bytes, polite.ready_bytes = 90_000, SMALL_PIECE
    books.step(STEP_S)
    assert polite.reads
    polite.ready_bytes = 0
    third = FrameSource(books, "c")
    third.say(SMALL_PIECE, now_s=STEP_S)
    third.ready_bytes = SMALL_PIECE
    stepped(books, STEP_S, 2 * SLOW_S)
    assert (held.is_open, paused.is_open) == (True, False)


def test_a_host_has_a_share() -> None:
    """Connections of one host wait above its share, while those of another go on."""
    books = PartialFrames(PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=50), lambda: None)
    greedy = [FrameSource(books, f"{number}", "1.1.1.1") for number in range(4)]
    for each in greedy:
        each.say(LIMIT // 5)
    polite = FrameSource(books, "polite", "2.2.2.2")
    polite.say(LIMIT // 10)
    assert [each.reads for each in greedy] == [True, True, True, False]
    assert polite.reads
    greedy[0].say(0, is_new=True)
    assert not greedy[3].reads
    greedy[1].say(0, is_new=True)
    assert all(each.reads for each in greedy)
    books.forget(polite)
    for each in greedy:
        books.forget(each)
    assert (books.bytes, books._hosts) == (0, {})


def test_another_host_is_favoured_before_one_above_its_share() -> None:
    """Even with fewer bytes ready."""
    books = PartialFrames(PartialFramesConfig(LIMIT, 60 * LIMIT, host_percent=50), lambda: None)
    first, greedy = FrameSource(books, "1", "1.1.1.1"), FrameSource(books, "2", "1.1.1.1")
    first.say(2 * LIMIT)
    greedy.say(LIMIT // 2)
    polite = FrameSource(books, "polite", "2.2.2.2")
    polite.say(SMALL_PIECE)
    greedy.ready_bytes, polite.ready_bytes = 80_000, SMALL_PIECE
    books.step(STEP_S)
    assert (first.reads, greedy.reads, polite.reads) == (False, False, True)


def test_memory_is_bounded_when_favours_move_on() -> None:
    """Above the headroom the connections whose progress is the oldest are closed."""
    books = PartialFrames(PartialFramesConfig(LIMIT, LIMIT // 2), lambda: None)
    many = sources(books, 100)
    now_s = 0.0
    for each in many:
        now_s += STEP_S
        each.say(LIMIT // 5, now_s=now_s)
        each.ready_bytes = LIMIT
        books.step(now_s)
        each.ready_bytes = 0
    assert books.bytes <= LIMIT * 3 // 2
    assert many[-1].is_open
    assert not many[0].is_open


def test_the_watch_is_called_when_a_line_forms() -> None:
    """And steps are asked for until nothing waits."""
    watched: list[str] = []
    books = PartialFrames(PartialFramesConfig(LIMIT, LIMIT), lambda: watched.append("watch"))
    one, two = sources(books, 2)
    one.say(2 * LIMIT)
    assert (watched, books.step_s) == ([], 0.0)
    two.say(LIMIT)
    assert watched == ["watch"]
    assert books.step_s >= STEP_S
    one.say(0, is_new=True)
    assert books.step_s == 0.0
