"""The stores under tests/golden/store, written by RocketMQ, and the keys of their manifests.

    clean     stopped gracefully                     lagging   crashed, with records that are not dispatched yet
    crashed   killed: stale checkpoint, abort        torn      crashed, the end of the last record is zeros
    trimmed   old segments deleted, stopped          crc       clean, with checksums over whole records

In a manifest, `expected` has the responses of the broker that wrote the store; `expectedBy5.3.3` those of 5.3.3 on a
store of 4.9.8, after its own recovery; `afterRestart` the state after such a recovery and a graceful stop.
"""

import hashlib
from pathlib import Path
from typing import Any, Final, NamedTuple

from skylarkmq.protocol.record import Record, to_message
from tests.harness.rounds import PART
from tests.harness.stores import golden_manifest, unpack_golden

GOLDEN_STORES: Final = [
    *(("4.9.8", name) for name in ("clean", "crashed", "lagging", "torn", "trimmed")),
    *(("5.3.3", name) for name in ("clean", "crc", "crashed")),
]
SOME_GOLDEN_STORES: Final = GOLDEN_STORES if PART == 1 else [("4.9.8", "torn"), ("5.3.3", "clean")]
"""All of them, or one of each version, for tests that read every message several times."""


class Golden(NamedTuple):
    """A copy of a store, and its manifest."""

    root: Path
    manifest: dict[str, Any]

    @property
    def expected(self) -> dict[str, Any]:
        """Return what RocketMQ 5.3.3 responds for this store."""
        responses: dict[str, Any] = self.manifest.get("expectedBy5.3.3") or self.manifest["expected"]
        return responses

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return every valid record of the log, in order."""
        records: list[dict[str, Any]] = self.manifest["commitLog"]["records"]
        return records

    @property
    def end(self) -> int:
        """Return the offset of the byte after the last valid record."""
        end: int = self.manifest["commitLog"]["endOfLastRecord"]
        return end


def golden_store(version: str, name: str, directory: Path) -> Golden:
    """Unpack that store into `directory` and return it."""
    return Golden(unpack_golden(version, directory, name), golden_manifest(version, name))


def described(found: Record, like: dict[str, Any]) -> dict[str, Any]:
    """Return a record in the form of the manifest."""
    message = to_message(found)
    properties = dict(message.properties)
    fields = {
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "tags": properties.pop("TAGS", None),
        "keys": properties.pop("KEYS", None),
        "uniqKey": properties.pop("UNIQ_KEY", None),
        "bodyLength": len(message.body),
        "bodySha1": hashlib.sha1(message.body).hexdigest(),
        "bodyCRC": message.body_crc,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "otherProperties": properties,
    }
    if "magic" in like:
        fields["magic"] = f"{found.magic & 0xFFFFFFFF:08x}"
    return fields


def host_text(host: tuple[str, int]) -> str:
    ip, port = host
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
