from libc.stdint cimport int64_t

ctypedef const unsigned char* Text
ctypedef int64_t* Places

cdef struct Part:  # of a record; NULL: it has none
    Text at
    Py_ssize_t size

ctypedef Part* Parts
