"""The page of all settings, from the tables of `broker/config/keys.py` and the structs of the configuration.

A row has the key, its default, the comment beside the field, the permitted values with their unit, and what RocketMQ
has for the key. Whether a change takes effect at once is found by changing each setting and asking the subscriptions of
`broker/app/config_reload.py` whether their value is different.

`rocketmq_defaults.json` has the defaults of RocketMQ 4.9.7 and 5.3.3 for the keys that it has.
`tests/interop/test_rocketmq_defaults.py` writes it from RocketMQ's classes and checks it.
"""

import ast
import inspect
import json
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints
from unittest.mock import MagicMock

import msgspec

from docs.hooks.markdown_text import escaped
from docs.hooks.reference_sections import link_to
from skylarkmq.broker.app.config_reload import subscribe_parts
from skylarkmq.broker.base.protected_keys import ALWAYS, DEFAULT
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import Setting
from skylarkmq.broker.config.sections import DaemonConfig, Machine, NamesrvDaemonConfig, load_broker, load_namesrv

ROCKETMQ: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    (Path(__file__).parent / "rocketmq_defaults.json").read_text()
)
LONGEST: Final = 100
MACHINE: Final = Machine("(host name)", "(the machine's address)", Path("$HOME"), str)
PROTECTED: Final = frozenset((*ALWAYS, *DEFAULT))
JVM_PROPERTIES: Final = ("tls.", "com.rocketmq.", "rebalanceLockMaxLiveTime")
COMMIT_LOG: Final = "storePathCommitLog"
"""The one key without a field: its only permitted value follows from another key."""

TITLES: Final = {
    "broker": "Broker",
    "listen": "Addresses",
    "replication": "Replication",
    "namesrv": "Name server",
    "security": "Protection of the daemon",
    "access": "Access control",
    "remoting": "Connections",
    "tls": "TLS on accepted connections",
    "outbound_tls": "TLS to name servers",
    "pools": "Requests that wait: number",
    "waits": "Requests that wait: time",
    "fast_failure": "Requests that wait: general",
    "store": "Store",
    "ops": "Health pages and metrics",
    "console": "Console",
    "limits": "Limits",
    "quotas": "Quotas",
    "audit": "Audit log",
}

TEXT: Final = """---
hide: [navigation]
---

# Settings

*This page is generated from the code.*

Settings are RocketMQ's keys in a properties file (`mqbroker -c broker.conf`), variables `SKYLARK_<KEY>` of the
environment, or flags `--set KEY=VALUE`; the later source overrides the earlier. [Configure](../run/configure.md)
explains how to use them. `mqbroker -p` prints the values in effect.

| Column | Meaning |
|---|---|
| Effect | *now*: a change by `mqadmin updateBrokerConfig` takes effect at once; *start*: at the next start |
| RocketMQ | what RocketMQ 4.9.7 and 5.3.3 have, see below |

In the column RocketMQ, *same* means that both versions have the key with this default; *5.3* that only 5.3.3 has it; a
value is RocketMQ's default; *JVM* a JVM property there; *ours* that RocketMQ does not have it.
"""


def page() -> str:
    """Return the page in Markdown."""
    broker = load_broker([], MACHINE)
    defaults = {row.key: row.value for row in broker.effective}
    sections = broker_sections(defaults, live_keys(broker.config))
    return "\n".join((TEXT, *sections, *namesrv_section(defaults), *other_keys()))


def broker_sections(defaults: Mapping[str, str], live: frozenset[str]) -> Iterator[str]:
    """Yield one table for each section of `mqbroker`. `live`: the keys whose change takes effect at once."""
    for section, title in TITLES.items():
        rows = [one for one in BROKER_KEYS.settings if one.section == section]
        yield from table(title, rows, defaults, live)


def namesrv_section(of_broker: Mapping[str, str]) -> Iterator[str]:
    """Yield the table of the keys that only `mqnamesrv` has, or with another default."""
    defaults = {row.key: row.value for row in load_namesrv([], MACHINE).effective}
    rows = [one for one in NAMESRV_KEYS.settings if defaults[one.key] != of_broker.get(one.key)]
    yield from table("Of `mqnamesrv`", rows, defaults, frozenset(), "mqnamesrv ")
    yield "`mqnamesrv` also has the settings of the sections "
    shared = [title for section, title in TITLES.items() if section in {one.section for one in NAMESRV_KEYS.settings}]
    yield ", ".join(f"*{title}*" for title in shared) + ", as far as they concern a name server.\n"


def table(
    title: str, rows: list[Setting], defaults: Mapping[str, str], live: frozenset[str], daemon: str = ""
) -> Iterator[str]:
    """Yield a table of settings."""
    yield f"## {title}\n\n| Key | Default | Meaning | Values | Effect | RocketMQ |\n|---|---|---|---|---|---|"
    for one in rows:
        default = "storePathRootDir/commitlog" if one.key == COMMIT_LOG else defaults[one.key]
        cells = (
            f'<span id="{(daemon + one.key).replace(" ", "-")}"></span>`{one.key}`',
            shown(default),
            escaped(meaning(one)) + link_to(one.key),
            escaped(expected(one)),
            "now" if one.key in live else "start",
            rocketmqs(one, default, daemon),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def other_keys() -> Iterator[str]:
    """Yield the keys of RocketMQ that are accepted and have no effect, or have one permitted value."""
    yield "## Keys with one permitted value\n\n| Key | Value | Reason |\n|---|---|---|"
    for key, only in sorted(BROKER_KEYS.only.items()):
        yield f"| `{key}` | `{only.value or '(empty)'}` | {only.why} |"
    yield "\n## Keys of RocketMQ without effect\n"
    yield "A configuration file may contain them; the log of the start names them.\n"
    yield ", ".join(f"`{key}`" for key in sorted(BROKER_KEYS.inactive | NAMESRV_KEYS.inactive))


# The cells.


def meaning(setting: Setting) -> str:
    """Return the comment beside the field of a setting."""
    if setting.key == COMMIT_LOG:
        return "directory of the log; no other value is permitted"
    text = re.sub(r"\s*\(ours\)", "", comments(struct_of(setting.section))[setting.field])
    return re.sub(r"\s+", " ", text).strip().rstrip(".")


def expected(setting: Setting) -> str:
    """Return the permitted values, in short words."""
    text = setting.kind.expected.removeprefix("a ").replace(" to 2147483647", "").replace(f" to {2**63 - 1}", "")
    return re.sub(r"\d{5,}", lambda found: f"{int(found[0]):,}", text).replace("whole number from ", "number from ")


def shown(default: str) -> str:
    """Return the cell of a default."""
    if len(default) > LONGEST:
        return f"{default.count(';') + 1} keys, in `broker/base/protected_keys.py`"
    return f"`{grouped(default)}`" if default else "–"


def grouped(text: str) -> str:
    """Return a default with its digits in groups."""
    return f"{int(text):,}" if re.fullmatch(r"\d{5,}", text) else text


def rocketmqs(setting: Setting, default: str, daemon: str) -> str:
    """Return what RocketMQ has for a key. `daemon` is the prefix of keys whose defaults differ between its daemons."""
    if setting.key.startswith(JVM_PROPERTIES):
        return "JVM"
    theirs = ROCKETMQ.get(f"{daemon}{setting.key}", ROCKETMQ.get(setting.key, {}))
    if not theirs:
        return "ours"
    differing = {version: text for version, text in theirs.items() if text != default}
    only = "" if len(theirs) == 2 else "5.3" if "5.3.3" in theirs else "4.9"
    if not differing:
        return only or "same"
    shown = {version: f"`{grouped(text) or '(empty)'}`" for version, text in differing.items()}
    if len(differing) == len(theirs) and len(set(shown.values())) == 1:
        return f"{only}: {min(shown.values())}".removeprefix(": ")
    return ", ".join(f"{version.rpartition('.')[0]}: {text}" for version, text in shown.items())


# Structs and their comments.


def struct_of(section: str) -> type:
    """Return the struct of a section."""
    hints = get_type_hints(NamesrvDaemonConfig) | get_type_hints(DaemonConfig)
    hint = hints[section]
    return hint if isinstance(hint, type) else next(kind for kind in get_args(hint) if kind is not type(None))


@cache
def comments(struct: type) -> Mapping[str, str]:
    """Return the comment at the end of the line of each field."""
    source = textwrap.dedent(inspect.getsource(struct))
    by_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    fields = {
        node.target.id: node.end_lineno
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return {name: by_line.get(line or 0, "") for name, line in fields.items()}


# Which settings take effect at once.


class Recorder:
    """Collects the subscriptions of the parts."""

    def __init__(self, config: DaemonConfig) -> None:
        self.config = config
        self.derived: list[Callable[[DaemonConfig], object]] = []

    def subscribe(self, derive: Callable[[DaemonConfig], object], _listener: object) -> None:
        """Keep the function that selects the values of a part."""
        self.derived.append(derive)


def live_keys(config: DaemonConfig) -> frozenset[str]:
    """Return the keys of `mqbroker` whose change is passed to a part."""
    recorder: Any = Recorder(config)
    subscribe_parts(recorder, MagicMock())
    return frozenset(one.key for one in BROKER_KEYS.settings if is_live(one, config, recorder.derived))


def is_live(setting: Setting, config: DaemonConfig, derived: list[Callable[[DaemonConfig], object]]) -> bool:
    """Return whether a subscription sees another value. Requests cannot change keys with dots and protected keys."""
    if setting.key == COMMIT_LOG or setting.key in PROTECTED or "." in setting.key:
        return False
    part = getattr(config, setting.section)
    changed = msgspec.structs.replace(part, **{setting.field: other_value(getattr(part, setting.field))})
    after = msgspec.structs.replace(config, **{setting.section: changed})
    return any(derive(after) != derive(config) for derive in derived)


def other_value(value: Any) -> Any:
    """Return a different value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 20  # sizes of queue files are multiples of 20
    if isinstance(value, Enum):
        return next(one for one in type(value) if one is not value)
    if isinstance(value, tuple):
        return (*value, *value, 1)
    if isinstance(value, Path):
        return value / "other"
    return "1s" if value is None else f"{value} 1s"
