"""Mapped files whose bytes are gone: a fault that would end the process becomes a page of zeros and a count.

A read or write of a mapping faults with SIGBUS where its file was truncated, or where the disk fails to read. The
handler (sigbus.pxd) replaces the page by an anonymous one, notes which bytes of which watched mapping it was, and lets
the instruction run again. Whoever reads a mapping checks afterwards: `Range.lost` says which bytes are not the file's,
`count` that some mapping had a fault. The page stays replaced until the file is mapped again.

Faults outside of watched mappings go to the handler that was installed before (faulthandler's, which prints where the
interpreter is, and ends the process). There is no interpreted counterpart: see broker.page_faults.
"""

import cython
from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.skylarkmq.protocol.compiled.sigbus import (
    skylark_faults,
    skylark_install,
    skylark_ranges,
    skylark_touch,
    skylark_watch,
)


def install():
    """Handle SIGBUS from now on. OSError: it cannot be."""
    problem: cython.int = skylark_install()
    if problem:
        raise OSError(problem, "no handler of SIGBUS")


def count() -> int:
    """Faults of this process that were handled."""
    return skylark_faults


@cython.final
@cython.cclass
class Range:
    """One mapping, watched until `forget`. ValueError: 16,384 are watched already."""

    slot = cython.declare(cython.int)

    def __cinit__(self, mapping):
        view: Py_buffer
        PyObject_GetBuffer(mapping, cython.address(view), PyBUF_SIMPLE)
        self.slot = skylark_watch(view.buf, view.len)
        PyBuffer_Release(cython.address(view))
        if self.slot < 0:
            raise ValueError("too many mappings are watched")

    def touch(self, at: cython.longlong):
        """Read byte `at`, so that a fault comes now. IndexError: it is not in the mapping."""
        if (
            self.slot < 0
            or at < 0
            or at >= cython.cast(cython.longlong, skylark_ranges[self.slot].end - skylark_ranges[self.slot].begin)
        ):
            raise IndexError(at)
        skylark_touch(self.slot, at)

    @property
    def lost(self) -> tuple:
        """`(first, behind)` of the bytes that had faults, (0, 0): none."""
        if self.slot < 0:
            return 0, 0
        return skylark_ranges[self.slot].first, skylark_ranges[self.slot].behind

    def forget(self):
        """The mapping goes; to be called before it is unmapped."""
        if self.slot >= 0:
            skylark_ranges[self.slot].begin = 0
            skylark_ranges[self.slot].end = 0
            self.slot = -1

    def __dealloc__(self):
        self.forget()
