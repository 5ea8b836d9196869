# Prefetch memory that is needed soon, so that the cache misses of several addresses overlap.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(address) __builtin_prefetch(address, 1)
    #else
    #define prefetch(address) ((void)(address))
    #endif
    #define prefetch_item(items, at) prefetch(&PyList_GET_ITEM(items, at))
    """
    void prefetch(const void* address) noexcept nogil
    void prefetch_item(list items, Py_ssize_t at) noexcept
