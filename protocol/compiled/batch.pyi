from typing import Any

class Batches:
    def __init__(self, pending: object, cluster_entry: bytes) -> None: ...
    def appends(
        self,
        body: Any,
        shared: tuple[tuple[bytes, bytes], ...],
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> list[Any] | None: ...

def offset_ids(host: bytes, appends: list[Any]) -> str: ...
