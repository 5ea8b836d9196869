"""Run a command with the system calls that a systemd unit allows; all others fail with EPERM, as in the unit.

    python tests/harness/filtered_calls.py '@system-service' '~@privileged @resources' -- mqbroker

Each argument before `--` is a value of SystemCallFilter=. As with MemoryDenyWriteExecute=yes, memory cannot become
executable. systemd-analyze lists the calls of a group, and libseccomp, which systemd uses, installs the filter.
"""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
from typing import Final

ALLOW: Final = 0x7FFF_0000
REFUSE: Final = 0x0005_0000 | errno.EPERM
MASKED_EQUAL: Final = 7
EQUAL_ARGUMENT: Final = 2  # of mmap and mprotect: the protection


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def group(name: str) -> set[str]:
    """Return the calls of a group, and of the groups that it contains."""
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    found: set[str] = set()
    for line in done.stdout.splitlines()[1:]:
        call = line.strip()
        if call and not call.startswith("#"):
            found |= group(call) if call.startswith("@") else {call}
    return found


def allowed(filters: list[str]) -> set[str]:
    """Return the calls that remain after all values, in order; the first one makes it a list of allowed calls."""
    calls: set[str] = set()
    for value in filters:
        named = {
            call for word in value.removeprefix("~").split() for call in (group(word) if word[0] == "@" else {word})
        }
        calls = calls - named if value.startswith("~") else calls | named
    return calls | group("@default")


def install(calls: set[str]) -> None:
    """Install the filter in this process. Raises OSError."""
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(REFUSE)))
    for call in sorted(calls):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            continue  # not on this architecture
        comparisons: list[Comparison] = []
        if call == "mmap":  # allowed without write, or without execute
            for bit in (mmap.PROT_WRITE, mmap.PROT_EXEC):
                rule(seccomp, context, number, [Comparison(EQUAL_ARGUMENT, MASKED_EQUAL, bit, 0)])
            continue
        if call in {"mprotect", "pkey_mprotect"}:
            comparisons = [Comparison(EQUAL_ARGUMENT, MASKED_EQUAL, mmap.PROT_EXEC, 0)]
        rule(seccomp, context, number, comparisons)
    code = seccomp.seccomp_load(context)
    if code:
        raise OSError(-code, os.strerror(-code))


def rule(seccomp: ctypes.CDLL, context: ctypes.c_void_p, number: int, comparisons: list[Comparison]) -> None:
    array = (Comparison * len(comparisons))(*comparisons)
    code = seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(ALLOW), number, len(comparisons), array)
    if code:
        raise OSError(-code, os.strerror(-code))


if __name__ == "__main__":
    split = sys.argv.index("--")
    install(allowed(sys.argv[1:split]))
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])
