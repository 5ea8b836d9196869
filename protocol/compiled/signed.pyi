from collections.abc import Sequence

from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.compiled.hmac_sha1 import HmacSha1
from skylarkmq.protocol.signature import ReadSigned

class Signed:
    access_key: str
    signature: str
    content: bytes

class Reader:
    signed_parts: ReadSigned
    def __init__(self, general: ReadSigned) -> None: ...
    def has_signed_send(
        self, command: RemotingCommand, code: int, topic: str, access_key: str, hmac: HmacSha1
    ) -> bool | None: ...
    def count_signed_sends(
        self,
        commands: Sequence[RemotingCommand],
        at: int,
        end: int,
        code: int,
        topic: str,
        access_key: str,
        hmac: HmacSha1,
    ) -> int: ...
