"""The key-value configuration: texts by namespace and key that operators set, and the file that stores them.

The only namespace in use is ORDER_TOPIC_CONFIG: topic -> `broker-a:8;broker-b:8`, the fixed queues of an ordered topic.

The file is one line, `{"configTable":{"namespace":{"key":"value"}}}`, replaced at each change: the new content is
written to `<name>.tmp` and synced; the current file becomes `<name>.bak`; the temporary one takes its name; the
directory is synced. If the directory has to be created, it is synced into its parent. A change takes effect only when
it is in the file: an acknowledged change survives a power cut, and a change whose write failed has no effect. Changes
are serialized; the write runs in a helper thread, which makes only system calls.
Source: docs/formats.md, "Name server".
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.errors import StartError
from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]

log = logging.getLogger(__name__)


class KVConfigFile(Body):
    """The content of the file."""

    config_table: Table = msgspec.field(default_factory=dict)


class KVConfigStatistics(msgspec.Struct, frozen=True):
    """Figures of the configuration; `saved` counts the changes since the start."""

    namespaces: int
    keys: int
    saved: int


class KVConfig:
    """The table and its file. The table is empty before `load`."""

    def __init__(self, path: Path, max_bytes: int = 1 << 20) -> None:
        self.max_bytes = max_bytes
        """Maximum number of characters of all keys and values; additions beyond it are refused."""
        self._path = path
        self._table: Table = {}
        self._saved = 0
        self._is_valid = False
        self._changing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<KVConfig {self._path} {sum(map(len, self._table.values()))} keys>"

    def statistics(self) -> KVConfigStatistics:
        """Return the current figures."""
        return KVConfigStatistics(
            namespaces=len(self._table), keys=sum(map(len, self._table.values())), saved=self._saved
        )

    def load(self) -> None:
        """Read the file, or its backup if it is damaged; without both the table is empty. Raises StartError if both are
        bad."""
        problems = []
        for path in (self._path, _backup(self._path)):
            try:
                self._table = KVConfigFile.decode(path.read_bytes()).config_table
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StartError(f"the name server's configuration cannot be read: {error}") from error
            except ValueError as error:
                log.warning("name server configuration damaged path=%s reason=%s", path, error)
                problems.append(f"{path}: {error}")
                continue
            self._is_valid = path == self._path
            if problems:
                log.warning("name server configuration restored from its backup path=%s", path)
            return
        if problems:
            raise StartError(f"the name server's configuration is damaged: {'; '.join(problems)}")

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value; None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all values of a namespace; None if none was ever set."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value; return when it is in the file. Raises RequestError: SYSTEM_ERROR if it cannot be written,
        SYSTEM_BUSY if the size limit is exceeded."""
        async with self._changing:
            self._check_growth(namespace, key, value)
            await self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def _check_growth(self, namespace: str, key: str, value: str) -> None:
        before = self.get(namespace, key)
        added = len(namespace) + len(key) + len(value) if before is None else len(value) - len(before)
        sizes = (len(name) + len(k) + len(v) for name, values in self._table.items() for k, v in values.items())
        if added > 0 and (size := sum(sizes) + added) > self.max_bytes:
            remark = f"the configuration would have {size} characters, maxKVConfigBytes={self.max_bytes}"
            raise RequestError(ResponseCode.SYSTEM_BUSY, remark)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove one value, which may be missing; an emptied namespace stays."""
        async with self._changing:
            if self.get(namespace, key) is not None:
                left = {k: v for k, v in self._table[namespace].items() if k != key}
                await self._replace({**self._table, namespace: left})

    async def _replace(self, table: Table) -> None:
        try:
            data = KVConfigFile(table).encode()
            await asyncio.to_thread(_replace_file, self._path, data, back_up=self._is_valid)
        except OSError as error:
            log.error("name server configuration not written path=%s reason=%s", self._path, error)
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the configuration cannot be saved: {error}") from error
        self._table = table
        self._saved += 1
        self._is_valid = True


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def _replace_file(path: Path, data: bytes, *, back_up: bool) -> None:
    """Replace the content of a file; see the module docstring. A damaged file must not replace a good backup."""
    _make_directory(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if back_up:
        backup = _backup(path)
        backup.unlink(missing_ok=True)
        os.link(path, backup)
    temporary.replace(path)
    _sync_directory(path.parent)


def _make_directory(path: Path) -> None:
    """Make a directory and its missing parents, each synced before anything is written into it."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        _sync_directory(each.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
