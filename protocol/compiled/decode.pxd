from skylarkmq.protocol.compiled.properties cimport Text

cdef class Send:
    cdef readonly int dialect
    cdef readonly int code
    cdef readonly int flag
    cdef readonly int opaque
    cdef readonly int version
    cdef readonly str topic
    cdef readonly int queue_id
    cdef object body_object
    cdef Text body_at  # in `data`; NULL once the body was replaced
    cdef Py_ssize_t body_size
    cdef int sys_flag
    cdef int message_flag
    cdef long long born_timestamp
    cdef int reconsume_times
    cdef bytes properties
    cdef int tags_code
    cdef Py_ssize_t key_at  # positions in `properties`: the unique key, and the value of KEYS
    cdef Py_ssize_t key_size
    cdef Py_ssize_t keys_at
    cdef Py_ssize_t keys_size
    cdef object decode
    cdef object data
    cdef Py_ssize_t header_at
    cdef Py_ssize_t header_end
    cdef object command

    cdef general(self)
