from skylarkmq.protocol.compiled.properties cimport Text

ctypedef void* Context  # EVP_MD_CTX
ctypedef const void* Kind  # EVP_MD

cdef struct Functions:  # of OpenSSL; `work` is NULL without them
    Kind (*sha1)() noexcept
    Context (*create)() noexcept
    void (*free)(Context) noexcept
    int (*init)(Context, Kind, void*) noexcept
    int (*copy)(Context, Context) noexcept
    int (*update)(Context, const void*, size_t) noexcept
    int (*finish)(Context, unsigned char*, unsigned int*) noexcept
    Context work  # of the HMAC that is being computed; the interpreter lock protects it

cdef class HmacSha1:
    cdef Context inner  # NULL without OpenSSL's functions
    cdef Context outer
    cdef object inner_state
    cdef object outer_state

    cdef bint has_signed(
        self, Text given, Py_ssize_t given_size, Text content, Py_ssize_t size, Text body, Py_ssize_t body_size
    ) except? -1
