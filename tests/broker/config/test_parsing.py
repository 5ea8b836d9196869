"""Settings: Java's properties format, the precedence of the sources, and the result of each class of key."""

from typing import Any

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.java_properties import parse_properties
from skylarkmq.broker.config.keys import BROKER_KEYS
from skylarkmq.broker.config.parsing import (
    FLAG,
    HIDDEN,
    Catalogue,
    Given,
    Kind,
    Only,
    Secret,
    Setting,
    choice,
    from_environment,
    from_file,
    from_flags,
    optional,
    pattern,
    secret,
    settle,
    several,
    shown,
    whole,
)

PORT = whole(1, 65535)
CATALOGUE = Catalogue(
    settings=(
        Setting("listenPort", "listen", "port", PORT),
        Setting("brokerIP1", "listen", "host", optional(pattern("a host", r"\S+"))),
        Setting("namesrvAddr", "broker", "namesrv", several(pattern("HOST:PORT", r"\S+:\d+"), ";")),
        Setting("com.rocketmq.remoting.frameMaxLength", "remoting", "frame", PORT),
    ),
    only={"aclEnable": Only("false", "there is no access control")},
    inactive=frozenset({"haListenPort"}),
)


def properties(text: str) -> dict[str, str]:
    return {key: value for _, key, value in parse_properties(text, "x.conf")}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("  a  =  b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b c", "a", "b c"),
        ("a = = b", "a", "= b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("=b", "", "b"),
        ("a=b=c", "a", "b=c"),
        ("a\\=b=c", "a=b", "c"),
        ("a\\ b=c", "a b", "c"),
        ("a=one\\\n   two", "a", "onetwo"),
        ("a=one\\\\\nb=2", "a", "one\\"),
        ("a=one\\\r\n\ttwo\\\nthree", "a", "onetwothree"),
        ("a=\\\n", "a", ""),
        ("a=x\\", "a", "x"),
        ("a=\\t\\n\\q\\\\", "a", "\t\nq\\"),
        ("a=\\u00e9", "a", "é"),
        ("a=\\uD83D\\uDE00", "a", "\N{GRINNING FACE}"),
        ("a=b # not a comment", "a", "b # not a comment"),
        ("# a comment \\\na=b", "a", "b"),
        ("! a comment\n\n \t\na=b", "a", "b"),
    ],
)
def test_a_properties_file_is_parsed_as_in_java(text: str, key: str, value: str) -> None:
    """Separators, continuations, comments and escapes are those of java.util.Properties."""
    assert properties(text)[key] == value


def test_lines_are_numbered_by_where_they_start() -> None:
    """A continued line has the number of its first part, and the next line its own."""
    assert [(line, key) for line, key, _ in parse_properties("# c\na=1\\\n2\n\nb=3", "x")] == [(2, "a"), (5, "b")]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uXYZW", "a=\\uD83D"])
def test_a_malformed_escape_names_file_and_line(text: str) -> None:
    """An escape that Java rejects stops the start."""
    with pytest.raises(StartError, match=r"x\.conf:2: malformed \\u escape"):
        properties("b=1\n" + text)


@generated(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_a_file_stored_by_java_is_read_back(table: dict[str, str]) -> None:
    """Keys and values escaped as by Java's `store` are read back unchanged."""

    def escaped(text: str) -> str:
        units = text.encode("utf-16-be")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in table.items())
    assert properties(text) == table


def test_a_stronger_source_overrides_a_weaker_one_per_key() -> None:
    """Flags override the environment, the environment overrides the file, the file overrides the default."""
    settled = settle(
        [
            *from_file("listenPort=1\nbrokerIP1=10.0.0.1\n", "b.conf"),
            *from_environment({"SKYLARK_LISTEN_PORT": "2", "PATH": "/bin"}, CATALOGUE),
            *from_flags(["listenPort=3"]),
        ],
        CATALOGUE,
    )
    assert settled.of("listen") == {"port": 3, "host": "10.0.0.1"}
    assert settled.origins == {"listenPort": "--set", "brokerIP1": "b.conf:2"}


def test_an_empty_optional_value_restores_the_default() -> None:
    """`--set brokerIP1=` overrides the value of the file with the default."""
    settled = settle([*from_file("brokerIP1=10.0.0.1", "b.conf"), *from_flags(["brokerIP1="])], CATALOGUE)
    assert settled.of("listen") == {}
    assert settled.origins == {}


@pytest.mark.parametrize("variable", ["SKYLARK_LISTEN_PORT", "SKYLARK_LISTENPORT", "SKYLARK_listenPort"])
def test_a_variable_matches_its_key_in_any_spelling(variable: str) -> None:
    """Case and underscores do not matter in the environment."""
    assert list(from_environment({variable: " 7 "}, CATALOGUE)) == [Given("listenPort", "7", f"environment {variable}")]


def test_the_switch_of_the_compiled_modules_is_not_a_key() -> None:
    """A variable that other code reads gives no warning."""
    assert list(from_environment({"SKYLARK_COMPILED": "0"}, BROKER_KEYS)) == []


def test_a_variable_matches_a_key_with_dots() -> None:
    """Keys that a shell cannot spell can be set too."""
    variable = "SKYLARK_COM_ROCKETMQ_REMOTING_FRAME_MAX_LENGTH"
    assert next(from_environment({variable: "1"}, CATALOGUE)).key == "com.rocketmq.remoting.frameMaxLength"


def test_skylark_namesrv_addr_overrides_namesrv_addr() -> None:
    """RocketMQ's own NAMESRV_ADDR is used, and SKYLARK_NAMESRV_ADDR overrides it."""
    given = list(from_environment({"NAMESRV_ADDR": "a:1", "SKYLARK_NAMESRV_ADDR": "b:2;c:3"}, CATALOGUE))
    assert settle(given[:1], CATALOGUE).of("broker") == {"namesrv": ("a:1",)}
    assert settle(given, CATALOGUE).of("broker") == {"namesrv": ("b:2", "c:3")}


def test_an_invalid_value_names_source_key_and_expected_values() -> None:
    """A known key with an invalid value stops the start, with one line that contains everything."""
    with pytest.raises(StartError) as caught:
        settle(from_file("\nlistenPort=abc\n", "b.conf"), CATALOGUE)
    assert str(caught.value) == "b.conf:2: listenPort=abc: expected a whole number from 1 to 65535"


def test_an_invalid_value_is_an_error_even_if_it_is_overridden() -> None:
    """A flag does not hide a mistake in the file."""
    with pytest.raises(StartError, match=r"^b\.conf:1: listenPort=abc"):
        settle([*from_file("listenPort=abc", "b.conf"), *from_flags(["listenPort=3"])], CATALOGUE)


@pytest.mark.parametrize("pair", ["listenPort", "=3", " =3"])
def test_a_flag_without_key_and_value_is_rejected(pair: str) -> None:
    """--set expects KEY=VALUE."""
    with pytest.raises(StartError, match="expected KEY=VALUE"):
        list(from_flags([pair]))


def test_an_unknown_key_gives_a_warning_with_the_most_similar_key() -> None:
    """A typing error is logged with a suggestion; a key without similar ones is logged alone."""
    settled = settle(from_file("listenprot=1\nhaListenPrt=1\nzzz=1", "b.conf"), CATALOGUE)
    assert settled.warnings == [
        "b.conf:1: unknown key listenprot, did you mean listenPort?",
        "b.conf:2: unknown key haListenPrt, did you mean haListenPort?",
        "b.conf:3: unknown key zzz",
    ]


def test_an_ignored_key_gives_a_note() -> None:
    """RocketMQ's other keys do not stop the start, and are listed."""
    settled = settle(from_file("haListenPort=x", "b.conf"), CATALOGUE)
    assert settled.notes == ["b.conf:1: haListenPort is a key of RocketMQ that this version ignores"]
    assert settled.warnings == []


def test_an_unsupported_feature_stops_the_start() -> None:
    """A key that would be unsafe to ignore is rejected, except with the value that this version supports."""
    assert settle(from_file("aclEnable=FALSE", "b.conf"), CATALOGUE).warnings == []
    with pytest.raises(StartError, match=r"^b\.conf:1: aclEnable=true: expected false, there is no access control$"):
        settle(from_file("aclEnable=true", "b.conf"), CATALOGUE)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (FLAG, "TRUE", True),
        (FLAG, "false", False),
        (whole(-5, 5), "-5", -5),
        (whole(0, 9), "+9", 9),
        (choice("A_B", "C"), "a_b", "A_B"),
        (optional(PORT), "", None),
        (several(PORT, ";"), "1; 2;", (1, 2)),
        (several(PORT, ";"), "", ()),
    ],
)
def test_a_valid_value_is_accepted(kind: Kind, text: str, value: Any) -> None:
    """Each kind parses its texts."""
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FLAG, "1"),
        (FLAG, "yes"),
        (FLAG, ""),
        (PORT, "0"),
        (PORT, "65536"),
        (PORT, "1_0"),
        (PORT, "٣"),
        (PORT, ""),
        (PORT, "1.0"),
        (choice("A"), "B"),
        (several(PORT, ";"), "1;x"),
        (pattern("x", r"\S+"), "a b"),
    ],
)
def test_an_invalid_value_is_rejected(kind: Kind, text: str) -> None:
    """There is no guessing: a text that does not clearly match the kind is an error."""
    with pytest.raises(ValueError):  # noqa: PT011 - the text of the error is not used
        kind.parse(text)


@pytest.mark.parametrize(("value", "text"), [(None, ""), (True, "true"), (7, "7"), (120.0, "120"), (("a", "b"), "a;b")])
def test_a_value_is_printed_as_it_is_written_in_a_file(value: Any, text: str) -> None:
    """The output of -p can be used in the file."""
    assert shown(value) == text


FILES = {"/run/secrets/port": "7\n", "ip": " 10.0.0.9 "}


def test_a_variable_may_name_a_file_with_the_value() -> None:
    """`_FILE` at the end of a key's variable, in any case; spaces and line ends around the value are dropped."""
    environment = {"SKYLARK_LISTEN_PORT_FILE": "/run/secrets/port", "SKYLARK_brokerIP1_file": "ip"}
    settled = settle(from_environment(environment, CATALOGUE, FILES.__getitem__), CATALOGUE)
    assert settled.of("listen") == {"port": 7, "host": "10.0.0.9"}
    assert settled.origins["listenPort"] == "environment SKYLARK_LISTEN_PORT_FILE"


def test_a_key_that_ends_in_file_is_a_key() -> None:
    """Its variable contains its value; with another `_FILE` it names a file."""
    catalogue = Catalogue((Setting("accountsFile", "a", "path", Kind("a path", str)),), {}, frozenset())
    (plain,) = from_environment({"SKYLARK_ACCOUNTS_FILE": "ip"}, catalogue, FILES.__getitem__)
    (named,) = from_environment({"SKYLARK_ACCOUNTS_FILE_FILE": "ip"}, catalogue, FILES.__getitem__)
    assert (plain.text, named.text) == ("ip", "10.0.0.9")


def test_a_value_and_a_file_with_the_value_exclude_each_other() -> None:
    """Which of them counts would be a guess."""
    environment = {"SKYLARK_LISTEN_PORT_FILE": "ip", "SKYLARK_listenPort": "7"}
    text = "SKYLARK_LISTEN_PORT_FILE: both this and SKYLARK_listenPort are set; remove one"
    with pytest.raises(StartError, match=text):
        list(from_environment(environment, CATALOGUE, FILES.__getitem__))


def test_files_with_secrets_are_known() -> None:
    """Each file that contains a secret setting, once; files without one, empty secrets and flags are not among them."""
    secrets = Catalogue(
        tuple(Setting(key, "s", key, secret(optional(Kind("a text", Secret)))) for key in ("a", "b", "c")),
        {},
        frozenset(),
    )
    environment = {"SKYLARK_A_FILE": "ip", "SKYLARK_B": "x"}
    given = [
        *from_file("a=1\nb=2", "one.conf"),
        *from_file("c=", "two.conf"),
        *from_environment(environment, secrets, FILES.__getitem__),
        *from_flags(["c=3"]),
    ]
    assert list(settle(given, secrets).secret_files) == ["one.conf", "ip"]


def test_a_secret_is_hidden_in_every_text() -> None:
    """In its repr and formatted, in settings, and in the error about an invalid value."""
    hidden = Secret("geheim")
    assert f"{hidden} {hidden!s} {hidden!r} {hidden:>3}" == "Secret() Secret() Secret() Secret()"
    setting = Setting("k", "s", "f", secret(whole(1, 9)))
    assert setting.shown(Secret("geheim")) == HIDDEN
    assert setting.shown("") == ""
    with pytest.raises(StartError) as caught:
        settle([Given("k", "geheim", "b.conf:1")], Catalogue((setting,), {}, frozenset()))
    assert str(caught.value) == "b.conf:1: k=(hidden): expected a whole number from 1 to 9"


@pytest.mark.parametrize(
    "key", ["someSecret", "dbPassword", "authToken", "innerCredentials", "metricsGrpcExporterHeader"]
)
def test_an_unsupported_key_with_a_secret_name_is_hidden(key: str) -> None:
    """Requests return the texts of unsupported keys; a mistyped secret must not be among them."""
    assert settle([Given(key, "geheim", "b.conf:1")], CATALOGUE).others == {key: HIDDEN}
    with pytest.raises(StartError) as caught:
        list(from_flags([f"{key}:geheim"]))
    assert "geheim" not in str(caught.value)
