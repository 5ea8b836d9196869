# Write parts of a response: text and decimal numbers. Each function returns the position after its output.

from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING


cdef inline char* put_bytes(char* at, bytes piece):
    memcpy(at, PyBytes_AS_STRING(piece), len(piece))
    return at + len(piece)


# Needs at most 20 bytes at `at`.
cdef inline char* put_decimal(char* at, long long value) noexcept:
    cdef char[20] reversed
    cdef int count = 0
    cdef unsigned long long rest = <unsigned long long> value
    if value < 0:
        at[0] = 45
        at += 1
        rest = 0 - rest
    while True:
        reversed[count] = <char> (48 + rest % 10)
        count += 1
        rest //= 10
        if rest == 0:
            break
    while count > 0:
        count -= 1
        at[0] = reversed[count]
        at += 1
    return at
