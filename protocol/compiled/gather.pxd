cdef extern from *:
    """
    #define bring_near(place) __builtin_prefetch(place, 0, 2)
    """
    void bring_near(const void* place) noexcept nogil
