from typing import Any

from skylarkmq.protocol.record import Buffer

def appends(buffer: Buffer, begins: object, queues: list[Any], numbers: object, status: object) -> list[Any]: ...
