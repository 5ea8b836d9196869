cdef class QueueTail:
    cdef public long long next_offset
    cdef public long long pending_next
    cdef public long long end
    cdef unsigned char* units  # units that are not in a file yet
    cdef int units_size  # bytes
    cdef int units_capacity
    cdef int new_units  # number of units added since the last take_new_tags_codes
    cdef public int uncounted
    cdef public int queue_id
    cdef public int magic
    cdef public bint is_schedule
    cdef public bint is_removed
    cdef readonly str topic
    cdef public bytes topic_field
    cdef public object traffic  # the fields above are needed for every message, so they share cache lines


cdef add_unit(QueueTail queue, long long position, int size, long long tags_code)
