from skylarkmq.protocol.compiled.header cimport SendFields
from skylarkmq.protocol.compiled.properties cimport Text

cdef bint read_msgpack_header(Text at, Text end, SendFields* found) noexcept
cdef Text read_integer(Text at, Text end, long long* number) noexcept
cdef Text read_int(Text at, Text end, int* number) noexcept
cdef Text read_nil(Text at, Text end) noexcept
cdef Text read_printable(Text at, Text end, Text* text, Py_ssize_t* size) noexcept
