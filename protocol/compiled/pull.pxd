from skylarkmq.protocol.compiled.properties cimport Text

cdef class Pull:
    cdef readonly int dialect
    cdef readonly int code
    cdef readonly int flag
    cdef readonly int opaque
    cdef readonly int version
    cdef public object body
    cdef readonly str consumer_group
    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly long long queue_offset
    cdef readonly int max_msg_nums
    cdef readonly int sys_flag
    cdef readonly long long commit_offset
    cdef readonly long long suspend_timeout_millis
    cdef readonly long long sub_version
    cdef readonly str subscription
    cdef readonly str expression_type
    cdef readonly object max_msg_bytes
    cdef readonly object request_source
    cdef readonly str bname
    cdef object decode
    cdef object header_type
    cdef object data
    cdef Py_ssize_t header_at
    cdef Py_ssize_t header_end
    cdef object command

    cdef general(self)

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
