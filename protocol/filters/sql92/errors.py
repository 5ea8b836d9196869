"""Errors in an expression (ExpressionError), and errors while a message is tested (EvaluationError)."""

QUOTED_CHARACTERS = 40


class ExpressionError(ValueError):
    """The expression does not compile. `reason`, and its position: `line` and `column` count from 1."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        before = text[:at].replace("\r\n", "\n").replace("\r", "\n")
        self.reason = reason
        self.line = before.count("\n") + 1
        self.column = len(before) - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class EvaluationError(Exception):
    """Two values cannot be compared: the message does not match."""


def quoted(text: str) -> str:
    """Return a part of an expression for an error text: shortened, and without control characters."""
    return repr(text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 1] + "…")
