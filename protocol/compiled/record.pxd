cdef class Append:
    cdef public str topic
    cdef public int queue_id
    cdef bytes property_bytes
    cdef public long long tags_code
    cdef public int flag
    cdef public int sys_flag
    cdef public long long born_timestamp
    cdef public bytes born_host
    cdef public int reconsume_times
    cdef public long long prepared_transaction_offset
    cdef public bint wait_flush
    cdef public object status
    cdef public long long physical_offset
    cdef public long long queue_offset
    cdef public int size
    cdef public long long store_timestamp
    cdef public object queue
    cdef object body_object
    cdef const unsigned char* body_at  # a body in the receive buffer, which `body_object` keeps alive; or NULL
    cdef Py_ssize_t body_size
    cdef object key_list
    cdef Py_ssize_t key_at  # positions in `property_bytes`: unique key and value of KEYS, while `key_size` > 0
    cdef Py_ssize_t key_size
    cdef Py_ssize_t keys_at
    cdef Py_ssize_t keys_size


cdef int check_key_positions(Append append) except? -1
