"""The tokens of an expression."""

import pytest

from skylarkmq.protocol.filters.sql92.errors import ExpressionError
from skylarkmq.protocol.filters.sql92.lexer import END, FLOAT, NAME, TEXT, WHOLE, Lexer


def tokens(text: str) -> list[tuple[str, str]]:
    lexer = Lexer(text)
    found = []
    while (token := lexer.next()).kind is not END:
        assert text.startswith(token.text, token.at)
        found.append((token.kind, token.text))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc $a_1 _ A9", [(NAME, "abc"), (NAME, "$a_1"), (NAME, "_"), (NAME, "A9")]),
        ("5 0 12l 3L", [(WHOLE, "5"), (WHOLE, "0"), (WHOLE, "12l"), (WHOLE, "3L")]),
        ("012", [(WHOLE, "0"), (WHOLE, "12")]),
        ("0l", [(WHOLE, "0"), (NAME, "l")]),
        ("5. .5 5.1 5E1 5.e-3 00.5", [(FLOAT, text) for text in ("5.", ".5", "5.1", "5E1", "5.e-3", "00.5")]),
        ("5a", [(WHOLE, "5"), (NAME, "a")]),
        ("5E", [(WHOLE, "5"), (NAME, "E")]),
        ("'a' 'it''s' ''", [(TEXT, "'a'"), (TEXT, "'it''s'"), (TEXT, "''")]),
        ("'a\nb--c/*'", [(TEXT, "'a\nb--c/*'")]),
        ("<><=<>=>=", [(mark, mark) for mark in ("<>", "<=", "<>", "=", ">=")]),
        ("(a,-b+c)", [(mark if mark in "(),-+" else NAME, mark) for mark in "(a,-b+c)"]),
        ("not And bETWEEN", [("NOT", "not"), ("AND", "And"), ("BETWEEN", "bETWEEN")]),
        ("a -- b\nc", [(NAME, "a"), (NAME, "c")]),
        ("a -- b\r\nc", [(NAME, "a"), (NAME, "c")]),
        ("a -- b", [(NAME, "a"), ("-", "-"), ("-", "-"), (NAME, "b")]),
        ("a/* b **/c/***/\t\f", [(NAME, "a"), (NAME, "c")]),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    """The longest token wins, keywords have a kind in capitals, space and comments are skipped."""
    assert tokens(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = #", "line 1, column 5: unexpected character '#'"),
        ("a\n = 'b", "line 2, column 4: unterminated text: the closing quote is missing"),
        ("\r\n\r /* *", "line 3, column 2: unterminated comment: */ is missing"),
        ("ä", "line 1, column 1: unexpected character 'ä'"),
        ("a.b", "line 1, column 2: unexpected character '.'"),
    ],
)
def test_errors_have_a_position(text: str, what: str) -> None:
    """If no token begins at a position, the error has line and column."""
    with pytest.raises(ExpressionError) as caught:
        tokens(text)
    assert str(caught.value) == what


def test_tokens_are_read_on_request() -> None:
    """Text is read only when its token is requested."""
    lexer = Lexer("a b #")
    assert [str(lexer.next()), str(lexer.next())] == ["'a'", "'b'"]
    with pytest.raises(ExpressionError):
        lexer.next()


def test_the_end_repeats() -> None:
    """After the last token the lexer returns END again and again."""
    lexer = Lexer(" ")
    assert lexer.next() == lexer.next()
    assert str(lexer.next()) == "the end"
