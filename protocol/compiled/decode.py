"""From the bytes of a read to commands, in C."""

import cython


@cython.ccall
def java_hash(text: bytes) -> cython.int:
    """Java's String.hashCode of ASCII text."""
    data: cython.p_const_uchar = text
    code: cython.uint = 0
    at: cython.Py_ssize_t
    for at in range(len(text)):
        code = code * 31 + data[at]
    return cython.cast(cython.int, code)
