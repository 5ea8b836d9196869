cdef extern from *:
    """
    #define atomic_read(address) __atomic_load_n(address, __ATOMIC_SEQ_CST)
    #define atomic_write(address, value) __atomic_store_n(address, value, __ATOMIC_SEQ_CST)
    """
    long long atomic_read(long long* address) noexcept nogil
    void atomic_write(long long* address, long long value) noexcept nogil

cdef extern from "sched.h" nogil:
    int sched_yield()
