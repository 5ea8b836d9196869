"""One YAML file: read as plain values, and replaced.

RocketMQ reads and writes these files with SnakeYAML, which is a port of PyYAML: both resolve values in the same way and
write the same layout. As in RocketMQ, unknown keys stay when a file is changed, and comments are lost. Only plain
values are read; a tag is accepted only for RocketMQ's own type of an account, which RocketMQ accepts, too.

A file is replaced at once, with mode 0600: the new content is written to a temporary file and synced, which then takes
the name. A symbolic link stays a link: its target is replaced.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from skylarkmq.broker.access.plain_acl.errors import AclError

MOST_BYTES: Final = 3 << 20
"""SnakeYAML's limit of a document."""
TEMPORARY_SUFFIX: Final = ".tmp"
MODE: Final = 0o600


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain values, and accounts with RocketMQ's tag."""


_Loader.add_constructor(
    "tag:yaml.org,2002:org.apache.rocketmq.common.PlainAccessConfig",
    lambda loader, node: loader.construct_mapping(node, deep=True),
)


class Fingerprint(NamedTuple):
    """Identifies the content of a file, as far as the file system shows it, and its mode."""

    inode: int
    size: int
    changed_ns: int
    mode: int


def fingerprint_of(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file; None if there is no such file. Raises OSError."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Fingerprint(status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def read(path: Path) -> dict[Any, Any]:
    """Return the mapping in a file; empty if the file is. Raises AclError without the content, or OSError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise AclError(f"the file exceeds {MOST_BYTES} bytes")
    try:
        value = yaml.load(data, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"
        raise AclError(f"not valid YAML{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise AclError("not valid YAML") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AclError("the file must be a mapping")
    return value


def replace(path: Path, values: Mapping[Any, Any]) -> None:
    """Replace the content of a file. Blocks for the disk. Raises OSError; the file is unchanged then."""
    target = os.path.realpath(path)
    text = yaml.safe_dump(dict(values), default_flow_style=False, sort_keys=False, allow_unicode=True)
    temporary = target + TEMPORARY_SUFFIX
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
    with open(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, MODE)
        file.write(text)
        file.flush()
        os.fsync(fd)
    os.replace(temporary, target)
    directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def create_if_missing(path: Path) -> None:
    """Create an empty file unless it exists. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE))
