from libc.stdint cimport int64_t

ctypedef const unsigned char* Text
ctypedef int64_t* Positions

cdef struct Part:  # a byte range of a record; `at` is NULL if the record does not have this part
    Text at
    Py_ssize_t size

ctypedef Part* Parts
