from collections.abc import Callable, Sequence
from typing import Any

from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.signature import ReadSigned

class Signed:
    access_key: str
    signature: str
    content: bytes

class Reader:
    signed_parts: ReadSigned
    def __init__(self, general: ReadSigned, compare: Callable[[Any, Any], bool]) -> None: ...
    def has_signed_send(
        self, command: RemotingCommand, code: int, topic: str, access_key: str, inner: Any, outer: Any
    ) -> bool | None: ...
    def count_signed_sends(
        self,
        commands: Sequence[RemotingCommand],
        at: int,
        end: int,
        code: int,
        topic: str,
        access_key: str,
        inner: Any,
        outer: Any,
    ) -> int: ...
