cdef extern from *:
    """
    #define atomic_read(place) __atomic_load_n(place, __ATOMIC_SEQ_CST)
    #define atomic_write(place, value) __atomic_store_n(place, value, __ATOMIC_SEQ_CST)
    """
    long long atomic_read(long long* place) noexcept nogil
    void atomic_write(long long* place, long long value) noexcept nogil

cdef extern from "sched.h" nogil:
    int sched_yield()
