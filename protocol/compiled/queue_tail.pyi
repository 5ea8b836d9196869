class QueueTail:
    topic: str
    queue_id: int
    magic: int
    topic_field: bytes
    is_schedule: bool
    next_offset: int
    pending_next: int
    uncounted: int
    @property
    def pending(self) -> bytes: ...
    def __init__(self, topic: str, queue_id: int) -> None: ...
    def drop_pending(self) -> None: ...
    def take_new_tags_codes(self) -> list[int]: ...
