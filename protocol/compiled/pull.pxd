from skylarkmq.protocol.compiled.properties cimport Text

cdef class InternCache:
    cdef str last
    cdef list words
    cdef str get(self, Text text, Py_ssize_t size)

cdef class Pulls:
    cdef InternCache groups
    cdef InternCache topics
    cdef InternCache subscriptions
    cdef InternCache types
    cdef InternCache names
    cdef object header_type
    cdef object general
    cdef read_frame(self, data, Text bytes_, Py_ssize_t header_at, Py_ssize_t body_at, Py_ssize_t frame_end, int dialect)
