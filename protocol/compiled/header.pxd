from skylarkmq.protocol.compiled.properties cimport Properties, Text

cdef struct SendFields:  # the fields of a fast-path send's header; texts are pointers into it
    int code
    int flag
    int opaque
    int version
    Text topic
    Py_ssize_t topic_size
    int queue_id
    int sys_flag
    int message_flag
    long long born_timestamp
    int reconsume_times
    Properties properties

cdef bint read_header(Text at, Text end, SendFields* found) noexcept
cdef bint read_binary_header(Text at, Text end, SendFields* found) noexcept
cdef bint is_printable(Text text, Py_ssize_t size) noexcept
cdef Text read_text(Text at, Text end) noexcept
cdef Text read_int32(Text at, Text end, int* number) noexcept
cdef Text read_number_text(Text at, Text end, long long* number) noexcept
cdef Text read_int32_text(Text at, Text end, int* number) noexcept
