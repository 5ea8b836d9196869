# Prefetch memory that is needed soon, so that the cache misses of several addresses overlap.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(place) __builtin_prefetch(place, 1)
    #else
    #define prefetch(place) ((void)(place))
    #endif
    #define prefetch_item(items, at) prefetch(&PyList_GET_ITEM(items, at))
    """
    void prefetch(const void* place) noexcept
    void prefetch_item(list items, Py_ssize_t at) noexcept
