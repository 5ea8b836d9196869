"""What is wrong with an expression (ExpressionError), or with a message that meets one (EvaluationError)."""

SHOWN_CHARACTERS = 40


class ExpressionError(ValueError):
    """An expression that does not compile: `reason`, and where (`line` and `column` count from 1)."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        before = text[:at].replace("\r\n", "\n").replace("\r", "\n")
        self.reason = reason
        self.line = before.count("\n") + 1
        self.column = len(before) - (before.rfind("\n") + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class EvaluationError(Exception):
    """Two values that do not compare: the message does not match."""


def shown(text: str) -> str:
    """A piece of an expression, as it stands in an error: cut, and without control characters."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")
