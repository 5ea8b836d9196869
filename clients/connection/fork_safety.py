"""What `fork` leaves in the child: objects whose event loop, threads and connections belong to the parent.

The child of a fork has the parent's objects, but neither the thread of `clients.blocking` nor a running loop, and its
descriptors are those of the parent's sockets: bytes written by the child would end up between the parent's, and a loop
that is closed in the child takes them out of the epoll set that it shares with the parent.

So objects that hold connections register a method here, which runs once in the child, before any other code. It gives
up what the object holds without a byte to a peer, and from then on the object raises ClientClosed. New objects work in
the child as in any process.
"""

import os
from collections.abc import Callable
from typing import Final
from weakref import WeakMethod

from skylarkmq.clients.errors import ClientClosed

_registered: Final[set[WeakMethod[Callable[[], None]]]] = set()


def register(forked: Callable[[], None]) -> None:
    """Have a bound method called in each child that is forked while its object lives, in the thread that forked."""
    _registered.add(WeakMethod(forked, _registered.discard))


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
    inherited = [reference() for reference in _registered]
    _registered.clear()
    for forked in inherited:
        if forked is not None:
            forked()


os.register_at_fork(after_in_child=_in_child)
