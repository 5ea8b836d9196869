"""Changes of the process that runs tests, which save time and no check.

files         os.fsync and os.fdatasync do nothing: no test of the quick tier cuts the machine's power
collector     a broker does not change the garbage collector, which it would slow down for all later tests
page server   the pauses of uvicorn, which waits for its end by asking every 100 ms, are a tenth
commands      typer makes the commands of a program once, not in each test that calls one: that takes 20 ms
"""

import asyncio
import os
import sys
from functools import cache
from types import ModuleType

PAUSE_PART = 10


def without_syncs() -> None:
    """Make syncs of files do nothing."""
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda fd: None)


def with_fast_brokers() -> None:
    """Change the modules of the broker that are loaded."""
    if daemon := sys.modules.get("skylarkmq.broker.app.daemon"):
        daemon.hold_off_collector = lambda running: None  # type: ignore[attr-defined]
    if server := sys.modules.get("uvicorn.server"):
        server.asyncio = hasty_asyncio()  # type: ignore[attr-defined]


def with_kept_commands() -> None:
    """Change the modules that make commands, and are loaded."""
    if testing := sys.modules.get("typer.testing"):
        get_command = testing._get_command = cache(testing._get_command)  # type: ignore[attr-defined]
        if cli := sys.modules.get("skylarkmq.broker.app.cli"):
            cli.get_command = get_command  # type: ignore[attr-defined]


def hasty_asyncio() -> ModuleType:
    """Return asyncio with shorter pauses."""
    module = ModuleType("asyncio")
    vars(module).update(vars(asyncio) | {"sleep": lambda pause_s: asyncio.sleep(pause_s / PAUSE_PART)})
    return module
