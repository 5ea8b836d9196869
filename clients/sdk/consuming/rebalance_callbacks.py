"""The callbacks of an application about its queues.

    on_revoked     before a queue is given up: its offset is committed afterwards
    on_assigned    before the first message of a queue is pulled: `seek` takes effect

Both get the queues of one topic. They are `async def`, or plain functions that do not block. The rebalance waits for
them. An exception is logged, and the rebalance continues. A queue whose lock was lost is revoked after the fact:
another member may read it already.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RETRY_PREFIX

QueuesCallback: TypeAlias = Callable[[Sequence[MessageQueue]], Awaitable[None] | None]
"""Is called with the queues, sorted."""

log = logging.getLogger(__name__)


class RebalanceCallbacks:
    """The callbacks of one consumer. Raises InvalidArgument if one of them cannot be called."""

    def __init__(
        self,
        on_assigned: QueuesCallback | None = None,
        on_revoked: QueuesCallback | None = None,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{name}={callback!r} is not a function")
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<RebalanceCallbacks {self._on_assigned} {self._on_revoked}>"

    async def assigned(self, queues: Sequence[MessageQueue]) -> None:
        """Call `on_assigned`, unless there are no queues."""
        await self._call(self._on_assigned, queues)

    async def revoked(self, queues: Sequence[MessageQueue]) -> None:
        """Call `on_revoked`, unless there are no queues."""
        await self._call(self._on_revoked, queues)

    async def _call(self, callback: QueuesCallback | None, queues: Sequence[MessageQueue]) -> None:
        """Call a callback, without the queues of the retry topic: the application does not subscribe to it."""
        named = sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))
        if callback is None or not named:
            return
        try:
            pending = callback(tuple(map(self._namespace.strip_queue, named)))
            if pending is not None:
                await pending
        except Exception:
            log.exception("rebalance callback failed queues=%s", [str(queue) for queue in named])


NO_CALLBACKS = RebalanceCallbacks()
