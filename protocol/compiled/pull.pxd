from skylarkmq.protocol.compiled.properties cimport Text

cdef class Words:
    cdef str last
    cdef list words
    cdef str of(self, Text text, Py_ssize_t size)

cdef class Pulls:
    cdef Words groups
    cdef Words topics
    cdef Words subscriptions
    cdef Words types
    cdef Words names
    cdef object header_type
    cdef object general
    cdef pull_in(self, data, Text bytes_, Py_ssize_t header_at, Py_ssize_t body_at, Py_ssize_t frame_end, int dialect)
