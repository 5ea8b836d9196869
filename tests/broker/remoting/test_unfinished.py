"""Unfinished frames: the bound at its edge, the line, and who is favoured; no clock but the times that are told."""

import pytest

from broker.remoting.unfinished import FAVOUR_S, SMALL_PIECE, Unfinished

LIMIT = 100_000


class Talker:
    """A connection that is read from until it has to wait."""

    def __init__(self, books: Unfinished, peer: str = "a") -> None:
        self._books = books
        self.peer = peer
        self.unfinished_bytes = 0
        self.is_held_up = False
        self.reads = True
        self.is_open = True

    def wait_for_memory(self) -> None:
        self.reads = False

    def read_on(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.is_open = False

    def say(self, size: int, *, is_new: bool = False, now_s: float = 0.0) -> None:
        """So much of a frame is here by now."""
        self._books.note(self, size, now_s, is_new=is_new)


@pytest.fixture
def books() -> Unfinished:
    return Unfinished(LIMIT)


def talkers(books: Unfinished, count: int) -> list[Talker]:
    return [Talker(books, f"{number}") for number in range(count)]


def test_up_to_the_limit_everybody_goes_on(books: Unfinished) -> None:
    """The limit itself is within; one byte more makes whoever brought it wait, were it not alone."""
    one, other = talkers(books, 2)
    one.say(LIMIT - SMALL_PIECE)
    other.say(SMALL_PIECE)
    assert (books.bytes, one.reads, other.reads) == (LIMIT, True, True)
    assert books.statistics().waiting == 0


def test_above_the_limit_one_goes_on_and_the_others_wait(books: Unfinished) -> None:
    """The first to meet the limit is favoured, so that something is finished; the next ones stand in line."""
    one, two, three = talkers(books, 3)
    one.say(LIMIT)
    two.say(SMALL_PIECE)
    assert two.reads  # favoured
    three.say(SMALL_PIECE)
    one.say(LIMIT + 1)
    assert (one.reads, two.reads, three.reads) == (False, True, False)
    assert [books.is_waiting(each) for each in (one, two, three)] == [True, False, True]
    two.say(10 * SMALL_PIECE)
    assert two.reads


def test_small_pieces_never_wait(books: Unfinished) -> None:
    """Whoever sends messages of usual size does not notice those who fill the memory."""
    one, two, polite = talkers(books, 3)
    one.say(LIMIT + 1)
    two.say(LIMIT)
    polite.say(SMALL_PIECE - 1)
    assert (one.reads, two.reads, polite.reads) == (True, False, True)


def test_a_finished_frame_makes_room(books: Unfinished) -> None:
    """Below the limit all who waited go on; above it, the next one is favoured."""
    one, two, three = talkers(books, 3)
    one.say(LIMIT)
    two.say(LIMIT)
    three.say(LIMIT)
    assert (one.reads, two.reads, three.reads) == (True, True, False)
    two.say(0, is_new=True)
    assert (books.bytes, three.reads) == (2 * LIMIT, True)  # favoured, one after the other
    three.say(0, is_new=True)
    assert (books.bytes, books.statistics().waiting) == (LIMIT, 0)


def test_the_line_is_served_in_order(books: Unfinished) -> None:
    """First come, first favoured."""
    first, *others = talkers(books, 4)
    first.say(2 * LIMIT)
    for each in others:
        each.say(LIMIT)
    assert [each.reads for each in others] == [False, False, False]
    for number, each in enumerate(others):
        (first, *others)[number].say(0, is_new=True)
        assert each.reads
        assert not any(later.reads for later in others[number + 1 :])


def test_who_begins_the_next_large_frame_is_no_longer_favoured(books: Unfinished) -> None:
    """One frame for one favour."""
    one, two = talkers(books, 2)
    one.say(2 * LIMIT)
    two.say(LIMIT)
    assert (one.reads, two.reads) == (True, False)
    one.say(LIMIT, is_new=True)
    assert (one.reads, two.reads) == (False, True)


def test_who_is_gone_takes_its_bytes_along(books: Unfinished) -> None:
    """From the line as well as from the favour."""
    one, two, three = talkers(books, 3)
    one.say(2 * LIMIT)
    two.say(LIMIT)
    three.say(LIMIT)
    books.forget(two, 1.0)
    assert (books.bytes, books.is_waiting(two)) == (3 * LIMIT, False)
    books.forget(one, 1.0)
    assert (books.bytes, three.reads) == (LIMIT, True)
    books.forget(three, 1.0)
    books.forget(three, 1.0)
    assert books.bytes == 0


def test_who_was_favoured_and_falls_silent_is_closed(books: Unfinished, caplog: pytest.LogCaptureFixture) -> None:
    """After FAVOUR_S, not before, and only if it keeps others waiting."""
    one, two = talkers(books, 2)
    one.say(2 * LIMIT, now_s=100.0)
    books.step(100.0 + FAVOUR_S)
    assert one.is_open
    two.say(LIMIT)
    books.step(100.0 + FAVOUR_S - 0.001)
    assert one.is_open
    books.step(100.0 + FAVOUR_S)
    assert (one.is_open, two.is_open, books.statistics().closed) == (False, True, 1)
    assert "closing connection peer=0" in caplog.text


def test_nobody_is_closed_for_what_it_was_not_let_do(books: Unfinished) -> None:
    """Its time begins when it is read from again."""
    one, two = talkers(books, 2)
    one.say(2 * LIMIT, now_s=100.0)
    two.say(LIMIT)
    one.is_held_up = True
    books.step(500.0)
    one.is_held_up = False
    books.step(500.0 + FAVOUR_S - 1)
    assert one.is_open
    books.step(500.0 + FAVOUR_S)
    assert not one.is_open
