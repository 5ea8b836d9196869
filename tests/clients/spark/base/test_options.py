"""Options: parsed by their rows, rejected with a hint, hidden if they are secret."""

import pytest

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.spark.base.cluster_options import cluster_fields
from skylarkmq.clients.spark.base.options import (
    Option,
    OptionError,
    Scope,
    Table,
    count,
    duration_ms,
    flag,
    markdown,
    one_of,
    parse,
    positive,
    secret,
    text,
    warn_out_of_scope,
)


class Made(ClusterOptions, frozen=True, kw_only=True):
    size: int = 3
    quick: bool = False


ROWS = (
    Option("nameServer", "name_server", "where", text, aliases=("namesrvAddr",)),
    Option("accessKey", "access_key", "who", secret),
    Option("secretKey", "secret_key", "with what", secret),
    Option("size", "size", "how many | few", positive, "7", scope=Scope.STREAM),
    Option("quick", "quick", "at once", flag, default_text="as it comes"),
)
TABLE = Table("t", Made, ROWS, assemble=cluster_fields)


def test_names_are_case_insensitive_and_defaults_are_parsed() -> None:
    """An absent option gets its parsed default, or the struct's default."""
    assert parse(TABLE, {"NAMESRVADDR": " n:1 ", "Quick": "TRUE"}) == Made(name_server="n:1", size=7, quick=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "t: nameServer is required: where"),
        ({"nameServer": "n:1", "sizes": "1"}, "t has no option sizes: did you mean size?"),
        ({"nameServer": "n:1", "zzz": "1"}, "t has no option zzz: see docs"),
        ({"nameServer": "n:1", "size": "0"}, "t: size must be a whole number above 0, not '0'"),
        ({"nameServer": "n:1", "namesrvAddr": "n:1"}, "t: nameServer is set twice"),
        ({"nameServer": "n:1", "accessKey": "k"}, "t: accessKey and secretKey go together"),
    ],
)
def test_errors_name_the_option(options: dict[str, str], said: str) -> None:
    """The error begins with the format and contains the remedy."""
    with pytest.raises(OptionError) as raised:
        parse(TABLE, options)
    assert str(raised.value).startswith(said)


def test_options_of_spark_are_ignored() -> None:
    """Checkpoint location and path are not options of the format."""
    assert parse(TABLE, {"nameServer": "n:1", "checkpointLocation": "/c", "path": "p"}).size == 7


def test_secrets_are_hidden() -> None:
    """Neither representations nor errors contain the text."""
    made = parse(TABLE, {"nameServer": "n:1", "accessKey": "k-123", "secretKey": "s-456"})
    assert "k-123" not in repr(made)
    assert "s-456" not in repr(made)
    assert made.credentials == Credentials("k-123", "s-456")


def test_options_without_effect_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Options of another kind of query have no effect; that is logged."""
    assert warn_out_of_scope(TABLE, ["SIZE", "nameServer", "path"], Scope.BATCH) == ["size"]
    assert "option=size" in caplog.text
    assert warn_out_of_scope(TABLE, ["size"], Scope.STREAM) == []


def test_the_table_of_the_documentation() -> None:
    """Names with aliases, meanings, and defaults, rules or requirements."""
    lines = markdown(TABLE).splitlines()
    assert lines[2] == "| `nameServer`, `namesrvAddr` | where | required |"
    assert lines[5:] == ["| `size` | how many \\| few (streaming only) | `7` |", "| `quick` | at once | as it comes |"]


@pytest.mark.parametrize(
    ("value", "ms"),
    [("500", 500), ("500ms", 500), ("30s", 30_000), (" 15 m ", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_durations(value: str, ms: int) -> None:
    """Numbers with units; a number without a unit is milliseconds."""
    assert duration_ms(value) == ms


def test_parser_errors_describe_the_accepted_values() -> None:
    """A ValueError completes the sentence `must be ...`."""
    for parser, value, said in (
        (duration_ms, "soon", "a time such as"),
        (count, "-1", "0 or more"),
        (flag, "yes", "true or false"),
        (text, " ", "a text"),
        (one_of("TAG", "SQL92"), "like", "one of TAG, SQL92"),
    ):
        with pytest.raises(ValueError, match=said):
            parser(value)
    assert one_of("TAG", "SQL92")("sql92") == "SQL92"
