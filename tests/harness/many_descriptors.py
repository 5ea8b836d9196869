"""A process with more open descriptors than `select` takes, as a broker with many segments has."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

FD_SETSIZE: Final = 1024
"""`select` refuses descriptors from this number on."""


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Every descriptor that is opened in this context has a number of at least FD_SETSIZE."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        if limits[0] < 2 * FD_SETSIZE:
            resource.setrlimit(resource.RLIMIT_NOFILE, (2 * FD_SETSIZE, limits[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < FD_SETSIZE:
            stack.callback(os.close, descriptor)
        os.close(descriptor)
        yield
