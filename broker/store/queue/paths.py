"""Paths of consume queues: nothing else is created or deleted below consumequeue/.

    consumequeue / <topic> / <queue id> / <20 digits>

Topics come from records and requests, so names are checked twice. First, `may_have_queue`
(broker.store.files.record_rules) limits queues to storable topics and to queue ids that fit into a record. Second,
`QueuePaths` checks the path at each start, creation and deletion: each part of the path has the required form, and no
directory on the way is a symbolic link that leads out of consumequeue/ (consumequeue/ itself may be a link). The check
takes two `lstat` calls, about 3 us.

Source: docs/reference/disk.md, "Store directory"; docs/reference/wire.md, "Names".
"""

import errno
import os
import stat
from typing import Final

from skylarkmq.protocol.decimals import INT32_MAX
from skylarkmq.protocol.disk import parse_offset_file_name
from skylarkmq.protocol.message import is_storable_topic

LIGHT_QUEUE_PREFIX: Final = "%LMQ%"


def parse_queue_id(name: str) -> int | None:
    """Return the queue id for a directory name; None if the name is not a queue id (ids have no leading zeros)."""
    if not (name.isascii() and name.isdigit()) or len(name) > len(str(INT32_MAX)):
        return None
    queue_id = int(name)
    return queue_id if str(queue_id) == name and queue_id <= INT32_MAX else None


class QueuePaths:
    """Checks paths below `root`, the directory of all queues."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __repr__(self) -> str:
        return f"<QueuePaths {self._root}>"

    def check(self, path: str) -> None:
        """Raise PermissionError unless `path` is the path of a queue segment and its symbolic links stay in the
        root."""
        directory, _, name = path.rpartition("/")
        if parse_offset_file_name(name) is None:
            raise _refusal(path, "the name is not a segment name")
        self.check_directory(directory)

    def check_directory(self, directory: str) -> None:
        """Raise PermissionError unless `directory` is a queue directory and its symbolic links stay in the root."""
        of_topic, _, queue_id = directory.rpartition("/")
        root, _, topic = of_topic.rpartition("/")
        if root != self._root or parse_queue_id(queue_id) is None or not _is_topic_directory(topic):
            raise _refusal(directory, "the name is not a queue directory")
        if _is_link(of_topic) or _is_link(directory):
            real_root, real = os.path.realpath(root), os.path.realpath(directory)
            if os.path.commonpath((real_root, real)) != real_root:
                raise _refusal(directory, f"a symbolic link leads to {real}")


def _is_topic_directory(topic: str) -> bool:
    """Return whether a directory of a topic may have this name. Light queues are served as found."""
    if topic.startswith(LIGHT_QUEUE_PREFIX):
        return "\0" not in topic
    return is_storable_topic(topic)


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _refusal(path: str, reason: str) -> PermissionError:
    return PermissionError(errno.EPERM, f"not a path of a queue, {reason}", path)
