"""Fork safety: objects of the parent do not touch the parent's connections in the child of a fork.

The child has copies of the parent's objects, but neither the thread of `skylarkmq.blocking` nor a running event loop.
Its descriptors belong to the parent's sockets: bytes that the child writes would mix with the parent's, and a loop
that is closed in the child removes the sockets from the epoll set that it shares with the parent.

Objects that hold connections therefore register a method here. It runs once in the child, before any other code, and
gives up the object's sockets without sending a byte. From then on the object raises ClientClosed. New objects work in
the child as in any process.
"""

import os
from collections.abc import Callable
from typing import Final
from weakref import WeakMethod

from skylarkmq.clients.sdk.base.errors import ClientClosed

_registered: Final[set[WeakMethod[Callable[[], None]]]] = set()


def register(forked: Callable[[], None]) -> None:
    """Call a bound method in each child that is forked while its object lives, in the thread that forked."""
    _registered.add(WeakMethod(forked, _registered.discard))


def detach(descriptor: int) -> None:
    """Replace the child's copy of a descriptor by /dev/null.

    The parent's socket is unaffected: nothing is written, shut down, or removed from an epoll set. The number stays in
    use, so an object that closes it later does not close a file that was opened in the meantime.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
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


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_in_child)
