"""What `fork` leaves in the child: objects whose event loop, threads and connections belong to the parent.

The child of a fork has the parent's objects, but neither the thread of `clients.blocking` nor a running loop, and its
descriptors are those of the parent's sockets: bytes written by the child would end up between the parent's, and a loop
that is closed in the child takes them out of the epoll set that it shares with the parent.

So objects that hold connections register here, and in the child each is told `forked` once, before any other code runs.
It gives up what it holds without a byte to a peer, and from then on raises ClientClosed. New objects work in the child
as in any process.
"""

import os
from typing import Protocol
from weakref import WeakSet

from clients.errors import ClientClosed


class Inherited(Protocol):
    """An object that must not be used in the child."""

    def forked(self) -> None:
        """Give up connections and files; runs in the child, in the thread that forked, without a loop."""


_registered: WeakSet[Inherited] = WeakSet()


def register(holder: Inherited) -> None:
    """Have `holder.forked()` called in each child that is forked while it lives."""
    _registered.add(holder)


def detach(descriptor: int) -> None:
    """Replace the child's copy of a descriptor by /dev/null.

    The parent's end stays as it is: nothing is written, shut down, or removed from an epoll set. The number stays in
    use, so an object that closes it later closes no file that was opened meanwhile.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, descriptor, inheritable=False)
    finally:
        os.close(nowhere)


def made_before_fork(what: str) -> ClientClosed:
    """Return the error for the use of an inherited object."""
    return ClientClosed(
        f"{what} was made before this process was forked, and belongs to the parent. Make a new one in the child."
    )


def _in_child() -> None:
    inherited = list(_registered)
    _registered.clear()
    for holder in inherited:
        holder.forked()


os.register_at_fork(after_in_child=_in_child)
