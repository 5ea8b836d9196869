# Prefetch memory that is needed soon, so that the cache misses of several addresses overlap.

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define fetch_ahead(place) __builtin_prefetch(place, 1)
    #else
    #define fetch_ahead(place) ((void)(place))
    #endif
    #define fetch_item_ahead(items, at) fetch_ahead(&PyList_GET_ITEM(items, at))
    """
    void fetch_ahead(const void* place) noexcept
    void fetch_item_ahead(list items, Py_ssize_t at) noexcept
