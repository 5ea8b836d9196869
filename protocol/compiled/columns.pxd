from libc.stdint cimport int64_t, uint32_t, uint64_t

ctypedef const unsigned char* Text
ctypedef int64_t* Positions
ctypedef uint32_t (*Checksum)(uint32_t, const unsigned char*, uint64_t) noexcept nogil  # seed, bytes, number

cdef struct Part:  # a byte range of a record; `at` is NULL if the record does not have this part
    Text at
    Py_ssize_t size

ctypedef Part* Parts

cdef struct Forms:  # bits of the columns that are numbers of distinct values, and of those that are views
    uint32_t encoded
    uint32_t viewed

cdef bint find_all(
    Text source, Py_ssize_t size, Positions starts, Py_ssize_t count, uint32_t wanted, Parts parts
) noexcept nogil
