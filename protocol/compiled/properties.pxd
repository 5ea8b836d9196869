ctypedef const unsigned char* Text

cdef struct Properties:  # the unescaped properties of one message; key and keys are positions in `text`
    Text text
    Py_ssize_t size
    int tags_code
    Py_ssize_t key_at
    Py_ssize_t key_size
    Py_ssize_t keys_at
    Py_ssize_t keys_size

cdef unsigned char[256] IS_PLAIN  # printable ASCII that a JSON text contains without an escape

cdef Text read_properties(Text at, Text end, Properties* found) noexcept
cdef bint scan_properties(Text text, Py_ssize_t size, Properties* found) noexcept

cdef bint copy_properties(Text at, Py_ssize_t size, Properties* found) noexcept

cdef int java_hash(Text text, Py_ssize_t size) noexcept

cdef add_keys(list keys, char* text, Py_ssize_t size)

cdef bint is_alphanumeric(Text text, Py_ssize_t size) noexcept

cdef int unicode_escape(Text at, Text end) noexcept
cdef int short_escape(int letter) noexcept
