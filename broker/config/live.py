"""The configuration of a daemon that runs: what it is now, who wants to hear of changes, and how it is asked for.

Configurations are values and do not change; a changed setting makes another one. A part that can take a new value while
it runs is wired so:

    settings.subscribe(lambda config: config.broker.long_polling_enable, self.pulls.allow_long_polling)
    settings.subscribe(groups_config, self.groups.configure)

The first argument says what of the whole configuration the part runs with, a field or a struct made of several; the
second is called with it whenever a change has made it another one. A setting that no follower looks at takes effect
at the next start, and the log says so; either way it stands in the file from then on, and is shown.

`RemoteSettings` is the way in from outside, as properties text: requests 25 and 26 of a broker, 318 and 319 of a name
server. What nobody can act on is not refused, because RocketMQ does not: an unknown key, a value that its key cannot
have. The log names it. JVM properties of RocketMQ (`tls.…`: keys with dots) are neither shown nor changed.

Source: docs/formats.md, "Settings at run time".
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from skylarkmq.broker.config.file import ConfigFile
from skylarkmq.broker.config.java_properties import entry, parse_properties
from skylarkmq.broker.config.parsing import Catalogue, Setting, shown
from skylarkmq.broker.config.sections import Loaded
from skylarkmq.broker.errors import StartError
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

Config = TypeVar("Config", bound=msgspec.Struct)
T = TypeVar("T")

ONLY_FOR_ONE_START: Final = ("environment ", "-")
"""How the origins of settings begin that a file cannot override: variables and flags."""

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """A setting with its new value, and the text that stands for it."""

    setting: Setting
    value: Any
    text: str


class _Subscription(NamedTuple):
    derive: Callable[[Any], object]
    listener: Callable[[Any], None]


class LiveSettingsStatistics(msgspec.Struct, frozen=True):
    """`changes` since the start."""

    changes: int
    subscriptions: int


class LiveSettings(Generic[Config]):
    """`config` is the configuration now. `now_ms` gives Unix time, for versions."""

    def __init__(self, loaded: Loaded[Config], now_ms: Callable[[], int]) -> None:
        self.config = loaded.config
        self.version = DataVersion().next(now_ms())
        self.others = dict(loaded.others)
        """Texts of keys that are not acted on."""
        self._origins = {row.key: row.origin for row in loaded.effective}
        self._now_ms = now_ms
        self._file = None if loaded.file is None else ConfigFile(loaded.file)
        self._writing = asyncio.Lock()
        self._subscriptions: list[_Subscription] = []
        self._changes = 0

    def __repr__(self) -> str:
        return f"<LiveSettings changes={self._changes} subscriptions={len(self._subscriptions)} {self._file!r}>"

    def statistics(self) -> LiveSettingsStatistics:
        """The figures now."""
        return LiveSettingsStatistics(self._changes, len(self._subscriptions))

    def subscribe(self, derive: Callable[[Config], T], listener: Callable[[T], None]) -> None:
        """Call `listener` with what `derive` makes of the configuration, each time that it makes something else."""
        self._subscriptions.append(_Subscription(derive, listener))

    async def change(self, changes: Iterable[Change], others: Mapping[str, str]) -> frozenset[str]:
        """Give settings other values, and texts to keys that are not acted on; returns the keys of settings that had
        another value before. On return all of it has taken effect, and is in the file if that can be written."""
        before = self.config
        texts: dict[str, str] = {}
        changed: list[str] = []
        for change in changes:
            config = _with(self.config, change)
            if config is None:
                continue
            texts[change.setting.key] = change.text
            if config != self.config:
                self._log_change(change, is_live=self._is_subscribed(self.config, config))
                changed.append(change.setting.key)
                self.config = config
        self.others.update(others)
        self.version = self.version.next(self._now_ms())
        self._changes += 1
        for derive, listener in self._subscriptions:
            value = derive(self.config)
            if value != derive(before):
                listener(value)
        await self._write(texts | dict(others))
        return frozenset(changed)

    def _is_subscribed(self, before: Config, after: Config) -> bool:
        return any(derive(before) != derive(after) for derive, _ in self._subscriptions)

    def _log_change(self, change: Change, *, is_live: bool) -> None:
        key = change.setting.key
        effect = "now" if is_live else "at the next start"
        log.info("setting changed key=%s value=%r effect=%s", key, shown(change.value), effect)
        origin = self._origins.get(key, "")
        if origin.startswith(ONLY_FOR_ONE_START):
            log.warning("setting changed for this run only, at a start the stronger wins key=%s given=%s", key, origin)

    async def _write(self, texts: Mapping[str, str]) -> None:
        if not texts:
            return
        if self._file is None:
            log.warning("settings changed for this run only, there is no file keys=%s", ",".join(texts))
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._file.change, texts)
        except (OSError, StartError) as problem:
            log.error("settings changed for this run only file=%r reason=%s", self._file, problem)


def _with(config: Config, change: Change) -> Config | None:
    """The configuration with one setting changed; None if its struct does not take the value."""
    setting, value, _ = change
    part = getattr(config, setting.section)
    if value is None or not hasattr(part, setting.field):
        return config  # the default again, or a part that is not there: the next start sees to it
    try:
        return msgspec.structs.replace(
            config, **{setting.section: msgspec.structs.replace(part, **{setting.field: value})}
        )
    except ValueError as problem:
        log.warning("setting not changed key=%s value=%r reason=%s", setting.key, change.text, problem)
        return None


class RemoteSettings:
    """The keys of a catalogue, as properties text. `shown_too`: texts of keys that readers want and that are none of
    ours. `black_list` gives the keys that nobody may change from outside."""

    def __init__(
        self,
        settings: LiveSettings[Any],
        catalogue: Catalogue,
        shown_too: Mapping[str, str],
        black_list: Callable[[], Iterable[str]],
    ) -> None:
        self._settings = settings
        self._by_key = {setting.key: setting for setting in catalogue.settings if "." not in setting.key}
        self._catalogue = catalogue
        self._shown_too = shown_too
        self._black_list = black_list

    def __repr__(self) -> str:
        return f"<RemoteSettings keys={len(self._by_key)} {self._settings!r}>"

    @property
    def version(self) -> DataVersion:
        """How often settings were changed."""
        return self._settings.version

    def text(self) -> str:
        """Every key with its value, a line each."""
        config = self._settings.config
        values = dict(self._shown_too)
        values |= {key: only.value for key, only in self._catalogue.only.items()}
        values |= self._settings.others
        for key, setting in self._by_key.items():
            part = getattr(config, setting.section)
            if hasattr(part, setting.field):
                values[key] = shown(getattr(part, setting.field))
        return "".join(f"{entry(key, value)}\n" for key, value in sorted(values.items()) if "." not in key)

    async def change(self, data: bytes) -> frozenset[str]:
        """Change what a properties text says; returns the keys that have other values now.

        RequestError for a text that is none, and for one with a key of the black list.
        """
        try:
            given = {key: value.strip() for _, key, value in parse_properties(str(data, "utf-8"), "request")}
        except (UnicodeDecodeError, StartError):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        if not given.keys().isdisjoint(self._black_list()):
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        changes = [change for key, text in given.items() if (change := self._change_of(key, text)) is not None]
        others = {key: text for key, text in given.items() if key in self._catalogue.inactive}
        if not changes and not others:
            return frozenset()
        return await self._settings.change(changes, others)

    def _change_of(self, key: str, text: str) -> Change | None:
        setting = self._by_key.get(key)
        if setting is None:
            if key not in self._catalogue.inactive:
                log.warning("setting not changed, its key is not one of ours key=%r", key)
            return None
        try:
            return Change(setting, setting.kind.parse(text), text)
        except ValueError:
            log.warning("setting not changed key=%s value=%r expected=%s", key, text, setting.kind.expected)
            return None
