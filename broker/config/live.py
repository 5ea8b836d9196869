"""The configuration of a running daemon: its current value, subscriptions to changes, and remote access.

Configurations are immutable values; a changed setting makes a new one. A part that can apply a new value at run time
subscribes to it:

    settings.subscribe(lambda config: config.broker.long_polling_enable, self.pulls.allow_long_polling)
    settings.subscribe(groups_config, self.groups.configure)

The first argument selects the values that the part uses, a field or a struct made of several fields. The second one is
called with them whenever a change has made them different. A setting without a subscription takes effect at the next
start, and this is logged. In both cases the new value is written to the file and returned to readers.

`RemoteSettings` is the remote access, as properties text: UPDATE_BROKER_CONFIG (25) and GET_BROKER_CONFIG (26) of a
broker, UPDATE_NAMESRV_CONFIG (318) and GET_NAMESRV_CONFIG (319) of a name server. An unknown key, or a value that its
key does not permit, is not rejected but logged, since RocketMQ accepts both. JVM properties of RocketMQ (`tls.…`: keys
with dots) are neither returned nor changed.

Source: docs/reference/behaviour.md, "Settings at run time".
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.config.file import ConfigFile
from skylarkmq.broker.config.java_properties import entry, parse_properties
from skylarkmq.broker.config.parsing import Catalogue, Setting, shown_other
from skylarkmq.broker.config.sections import EffectiveSetting, Loaded, effective_settings
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

Config = TypeVar("Config", bound=msgspec.Struct)
T = TypeVar("T")

ONLY_FOR_ONE_START: Final = ("environment ", "-")
"""Prefixes of the origins that a file does not override: environment variables and flags."""

CHANGED: Final = "changed at run time"
"""The origin of settings that a request has changed since the start."""

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """A setting with its new value, and the text of the value."""

    setting: Setting
    value: Any
    text: str


class _Subscription(NamedTuple):
    derive: Callable[[Any], object]
    listener: Callable[[Any], None]


class LiveSettingsStatistics(msgspec.Struct, frozen=True):
    """`changes`: number of changes since the start."""

    changes: int
    subscriptions: int


class LiveSettings(Generic[Config]):
    """The settings of one daemon; `config` is the current configuration. `now_ms` returns Unix time, for versions."""

    def __init__(self, loaded: Loaded[Config], now_ms: Callable[[], int]) -> None:
        self.config = loaded.config
        self.version = DataVersion().next(now_ms())
        self.others = dict(loaded.others)
        """Texts of keys that are not supported."""
        self._origins = {row.key: row.origin for row in loaded.effective}
        self._now_ms = now_ms
        self._file = None if loaded.file is None else ConfigFile(loaded.file)
        self._writing = asyncio.Lock()
        self._subscriptions: list[_Subscription] = []
        self._changes = 0
        self._changed: set[str] = set()

    def __repr__(self) -> str:
        return f"<LiveSettings changes={self._changes} subscriptions={len(self._subscriptions)} {self._file!r}>"

    def statistics(self) -> LiveSettingsStatistics:
        """Return the current figures."""
        return LiveSettingsStatistics(self._changes, len(self._subscriptions))

    def effective(self, catalogue: Catalogue) -> list[EffectiveSetting]:
        """Return the current value of each key and its origin; secrets are hidden."""
        origins = {key: origin for key, origin in self._origins.items() if key not in self._changed}
        return effective_settings(self.config, catalogue.settings, origins | dict.fromkeys(self._changed, CHANGED))

    def subscribe(self, derive: Callable[[Config], T], listener: Callable[[T], None]) -> None:
        """Call `listener` with the result of `derive(config)` whenever it has changed."""
        self._subscriptions.append(_Subscription(derive, listener))

    async def change(self, changes: Iterable[Change], others: Mapping[str, str]) -> frozenset[str]:
        """Set settings to new values, and store the texts of unsupported keys; return the keys whose values are
        different. On return the changes have taken effect, and are in the file if it can be written."""
        before = self.config
        texts: dict[str, str] = {}
        changed: list[str] = []
        holds_secret = False
        for change in changes:
            config = _with(self.config, change)
            if config is None:
                continue
            texts[change.setting.key] = change.text
            holds_secret |= change.setting.kind.is_secret
            if config != self.config:
                self._log_change(change, is_live=self._is_subscribed(self.config, config))
                changed.append(change.setting.key)
                self._changed.add(change.setting.key)
                self.config = config
        self.others.update({key: shown_other(key, text) for key, text in others.items()})
        self.version = self.version.next(self._now_ms())
        self._changes += 1
        for derive, listener in self._subscriptions:
            value = derive(self.config)
            if value != derive(before):
                listener(value)
        await self._write(texts | dict(others), holds_secret=holds_secret)
        return frozenset(changed)

    def _is_subscribed(self, before: Config, after: Config) -> bool:
        return any(derive(before) != derive(after) for derive, _ in self._subscriptions)

    def _log_change(self, change: Change, *, is_live: bool) -> None:
        key = change.setting.key
        effect = "now" if is_live else "at the next start"
        log.info("setting changed key=%s value=%r effect=%s", key, change.setting.shown(change.value), effect)
        origin = self._origins.get(key, "")
        if origin.startswith(ONLY_FOR_ONE_START):
            log.warning("setting changed for this run only, the file is overridden key=%s given=%s", key, origin)

    async def _write(self, texts: Mapping[str, str], *, holds_secret: bool) -> None:
        if not texts:
            return
        if self._file is None:
            log.warning("settings changed for this run only, no file keys=%s", ",".join(texts))
            return
        try:
            async with self._writing:
                await asyncio.to_thread(self._file.change, texts, holds_secret=holds_secret)
        except (OSError, StartError) as problem:
            log.error("settings changed for this run only file=%r reason=%s", self._file, problem)


def _with(config: Config, change: Change) -> Config | None:
    """Return the configuration with one setting changed; None if its struct rejects the value."""
    setting, value, text = change
    part = getattr(config, setting.section)
    if value is None or not hasattr(part, setting.field):
        return config  # the default, or a missing part: applied at the next start
    try:
        return msgspec.structs.replace(
            config, **{setting.section: msgspec.structs.replace(part, **{setting.field: value})}
        )
    except ValueError as problem:
        log.warning("setting not changed key=%s value=%r reason=%s", setting.key, setting.shown_text(text), problem)
        return None


class RemoteSettings:
    """Remote access to the keys of a catalogue, as properties text.

    `shown_too`: texts of keys that clients expect and that do not exist here. `black_list` returns the keys that must
    not be changed remotely."""

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
        """Return the version, which counts the changes."""
        return self._settings.version

    def text(self) -> str:
        """Return every key with its value, one per line."""
        config = self._settings.config
        values = dict(self._shown_too)
        values |= {key: only.value for key, only in self._catalogue.only.items()}
        values |= self._settings.others
        for key, setting in self._by_key.items():
            part = getattr(config, setting.section)
            if hasattr(part, setting.field):
                values[key] = setting.shown(getattr(part, setting.field))
        return "".join(f"{entry(key, value)}\n" for key, value in sorted(values.items()) if "." not in key)

    async def change(self, data: bytes) -> frozenset[str]:
        """Apply the changes of a properties text; return the keys whose values are different now.

        Raises RequestError for text in another format, and for text with a protected key.
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
                log.warning("setting not changed, unknown key key=%r", key)
            return None
        try:
            return Change(setting, setting.kind.parse(text), text)
        except ValueError:
            shown_text = setting.shown_text(text)
            log.warning("setting not changed key=%s value=%r expected=%s", key, shown_text, setting.kind.expected)
            return None
