"""The shared parts of the commands: sizes, errors in one line, exit codes."""

import pytest
import typer
from pyspark.errors import PySparkException

from skylarkmq.clients.sdk.base.errors import ClientClosed
from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.command_line import (
    FAILED,
    NOT_STARTED,
    NotStarted,
    error_summary,
    key_values,
    reporting,
    size,
)


def test_sizes_have_units() -> None:
    """k, m and g are powers of 1,024."""
    assert [size(text, "--x") for text in ("1", "2k", "256m", "1GB")] == [1, 2048, 256 << 20, 1 << 30]
    with pytest.raises(NotStarted, match="--x must be a size"):
        size("0", "--x")


def test_a_long_error_is_reduced_to_its_cause() -> None:
    """The last Python error in Spark's message, or the first line."""
    error = "skylarkmq.clients.arrow.topic.data_loss.DataLoss: lost 5"
    spark = f"[STREAM_FAILED] Query\nTraceback\n  File x\n{error}\n  at org.apache\n"
    assert error_summary(spark) == "lost 5"
    assert error_summary("[STREAM_FAILED] Query\n  at org.apache\n") == "[STREAM_FAILED] Query"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotStarted("no topic"), NOT_STARTED),
        (OptionError("no option"), NOT_STARTED),
        (PySparkException("the query failed\n  at org.apache"), FAILED),
        (ClientClosed("closed"), FAILED),
        (FileNotFoundError(2, "no such file", "lake"), FAILED),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors that a user can cause end the command without a traceback."""
    with pytest.raises(typer.Exit) as ended, reporting("mqspark-x"):
        raise error
    assert ended.value.exit_code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mqspark-x: ")


def test_an_error_of_the_command_itself_keeps_its_traceback() -> None:
    """A bug is not reported like a mistake of the user."""
    with pytest.raises(KeyError), reporting("mqspark-x"):
        raise KeyError("x")


def test_a_setting_needs_a_value() -> None:
    """KEY=VALUE; the value may contain more equals signs."""
    assert key_values(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(NotStarted, match="must be KEY=VALUE"):
        key_values(["a"])
