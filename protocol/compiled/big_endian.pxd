# Read and write big-endian numbers, as frames and records contain them, at any alignment.

from libc.stdint cimport uint32_t, uint64_t


cdef inline uint32_t get32(const void* address) noexcept nogil:
    cdef const unsigned char* at = <const unsigned char*> address
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]


cdef inline uint64_t get64(const void* address) noexcept nogil:
    return (<uint64_t> get32(address) << 32) | get32(<const unsigned char*> address + 4)


cdef inline void put32(void* address, uint32_t number) noexcept nogil:
    cdef unsigned char* to = <unsigned char*> address
    to[0] = <unsigned char> (number >> 24)
    to[1] = <unsigned char> (number >> 16)
    to[2] = <unsigned char> (number >> 8)
    to[3] = <unsigned char> number


cdef inline void put64(void* address, uint64_t number) noexcept nogil:
    put32(address, <uint32_t> (number >> 32))
    put32(<unsigned char*> address + 4, <uint32_t> number)
