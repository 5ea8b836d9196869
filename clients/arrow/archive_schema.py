"""The table of archived messages, and the layout of an archive directory.

    ARCHIVE/messages/BROKER/<20 digits>.parquet    messages, sorted by topic, queueId, queueOffset, physicalOffset
    ARCHIVE/manifest/BROKER/<20 digits>.json       which range of the log is in which files

A file is named after the physical offset at which its part of the log begins. `clients/spark/archive` writes an
archive, `clients/spark/replay` reads it; both use the columns below, in this order.

    key                  the first word of `keys`, with a Bloom filter; null without keys
    tags, keys, msgId    properties TAGS, KEYS and UNIQ_KEY (else the offset id); null if absent. `msgId` has a Bloom
                         filter
    properties           all properties as stored, `name 0x01 value 0x02 …`
    body                 as stored: still compressed if `sysFlag` says so
    bodyCrc              CRC-32 of `body`, as in the record (31 bits)
    bornHost, storeHost  `host:port`, or `[host]:port` for IPv6
    readable             whether a consumer could read the message. It is false only in archives of everything: for half
                         messages, rolled back messages, delayed messages that wait, internal topics and deleted topics.
                         A replay selects readable rows.

A time outside of the years 1 to 9999 is null. Source: docs/use/spark/archive.md, docs/reference/disk.md "CommitLog
record".
"""

from typing import Final

import pyarrow as pa

_TIME: Final = pa.timestamp("us", tz="UTC")

ARCHIVE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("storeTimestamp", _TIME),
        ("bornTimestamp", _TIME),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("sysFlag", pa.int32()),
        ("flag", pa.int32()),
        ("bodyCrc", pa.int32()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("key", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("msgId", pa.string()),
        ("properties", pa.string()),
        ("body", pa.binary()),
        ("readable", pa.bool_()),
    ]
)
"""The columns of an archived message. All are nullable, so that readers need no special case."""

SORT_COLUMNS: Final = ("topic", "queueId", "queueOffset", "physicalOffset")
"""The order of the rows within a file."""

MESSAGES_DIRECTORY: Final = "messages"
MANIFEST_DIRECTORY: Final = "manifest"
MESSAGES_SUFFIX: Final = ".parquet"
MANIFEST_SUFFIX: Final = ".json"
