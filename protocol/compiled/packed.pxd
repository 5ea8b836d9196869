from protocol.compiled.header cimport Found
from protocol.compiled.properties cimport Text

cdef bint read_packed_header(Text at, Text end, Found* found) noexcept
