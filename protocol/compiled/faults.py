"""Lost bytes of mapped files: a fault that would end the process becomes a page of zeros and a count.

A read or write of a mapping raises SIGBUS where its file was truncated, or where the disk cannot read. The handler
(sigbus.pxd) replaces the page by an anonymous one, records which bytes of which watched mapping were lost, and restarts
the instruction. Readers of a mapping check afterward: `Range.lost` returns the bytes that are not the file's, `count`
the number of faults in all mappings. The page stays replaced until the file is mapped again.

A fault outside of watched mappings goes to the previous handler (faulthandler's, which prints the Python stack and ends
the process). There is no pure-Python version: see broker/base/page_faults.py.
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
    """Handle SIGBUS from now on. Raises OSError if the handler cannot be installed."""
    problem: cython.int = skylark_install()
    if problem:
        raise OSError(problem, "cannot install a SIGBUS handler")


def count() -> int:
    """Return the number of faults that were handled in this process."""
    return skylark_faults


@cython.final
@cython.cclass
class Range:
    """One mapping, watched until `forget`. Raises ValueError if 16,384 mappings are watched already."""

    slot = cython.declare(cython.int)

    def __cinit__(self, mapping):
        view: Py_buffer
        PyObject_GetBuffer(mapping, cython.address(view), PyBUF_SIMPLE)
        self.slot = skylark_watch(view.buf, view.len)
        PyBuffer_Release(cython.address(view))
        if self.slot < 0:
            raise ValueError("too many mappings are watched")

    def touch(self, at: cython.longlong):
        """Read byte `at`, to cause a possible fault now. Raises IndexError if `at` is outside of the mapping."""
        if (
            self.slot < 0
            or at < 0
            or at >= cython.cast(cython.longlong, skylark_ranges[self.slot].end - skylark_ranges[self.slot].begin)
        ):
            raise IndexError(at)
        skylark_touch(self.slot, at)

    @property
    def lost(self) -> tuple:
        """`(begin, end)` of the bytes that had faults; (0, 0) if none had."""
        if self.slot < 0:
            return 0, 0
        return skylark_ranges[self.slot].lost_begin, skylark_ranges[self.slot].lost_end

    def forget(self):
        """Stop watching the mapping; to be called before it is unmapped."""
        if self.slot >= 0:
            skylark_ranges[self.slot].begin = 0
            skylark_ranges[self.slot].end = 0
            self.slot = -1

    def __dealloc__(self):
        self.forget()
