"""The key-value configuration: texts by namespace and key that operators set, and the file that stores them.

The only namespace in use is ORDER_TOPIC_CONFIG: topic -> `broker-a:8;broker-b:8`, the fixed queues of an ordered topic.

The file is one line, `{"configTable":{"namespace":{"key":"value"}}}`, replaced at each change (`StateFile`). A change
takes effect only when it is in the file: an acknowledged change survives a power cut, and a change whose write failed
has no effect. Changes are serialized; the write runs in a helper thread, which makes only system calls.
Source: docs/reference/wire.md, "Name server".
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.state_file import StateFile
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
        self._file = StateFile(path.absolute(), validate=KVConfigFile.decode)
        self._table: Table = {}
        self._saved = 0
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
        try:
            data = self._file.load()
        except StoreError as error:
            raise StartError(f"the name server's configuration cannot be used: {error}") from error
        except OSError as error:
            raise StartError(f"the name server's configuration cannot be read: {error}") from error
        self._table = {} if data is None else KVConfigFile.decode(data).config_table

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value, or None."""
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
            await asyncio.to_thread(self._file.save, KVConfigFile(table).encode())
        except OSError as error:
            log.error("name server configuration not written path=%s reason=%s", self._path, error)
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the configuration cannot be saved: {error}") from error
        self._table = table
        self._saved += 1
