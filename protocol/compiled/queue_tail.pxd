cdef class QueueTail:
    cdef public long long next_offset
    cdef public long long pending_next
    cdef public long long end
    cdef unsigned char* units  # that are in no file yet
    cdef int units_size  # bytes
    cdef int units_room
    cdef int turn  # units gathered since the last take_turn
    cdef public int unnoted
    cdef public int queue_id
    cdef public int magic
    cdef public bint is_schedule
    cdef public bint is_removed
    cdef readonly str topic
    cdef public bytes topic_field
    cdef public object traffic  # all above, which every message needs, lies close together


cdef add_unit(QueueTail queue, long long position, int size, long long tags_code)
