# Handling of SIGBUS in a mapping of a file that was truncated or cannot be read: the handler replaces the lost page by
# a page of zeros and counts the fault. Only faults.py may include this file, because the table below must exist once.

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>

    #define SKYLARK_RANGES 16384

    typedef struct {
        volatile uintptr_t begin;  /* 0: free */
        volatile uintptr_t end;
        volatile int64_t lost_begin;    /* lost bytes of the range: [lost_begin, lost_end) */
        volatile int64_t lost_end;
    } skylark_range;

    static skylark_range skylark_ranges[SKYLARK_RANGES];
    static volatile int64_t skylark_faults;
    static int skylark_used, skylark_is_installed;
    static uintptr_t skylark_page;
    static struct sigaction skylark_before;

    static int skylark_replace(uintptr_t address) {
        for (int n = 0; n < skylark_used; n++) {
            skylark_range* range = &skylark_ranges[n];
            if (address < range->begin || address >= range->end) continue;
            uintptr_t page = address & ~(skylark_page - 1);
            if (mmap((void*) page, skylark_page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return 0;
            int64_t lost_begin = (int64_t) (page - range->begin), lost_end = lost_begin + (int64_t) skylark_page;
            if (range->lost_end == 0 || lost_begin < range->lost_begin) range->lost_begin = lost_begin;
            if (lost_end > range->lost_end) range->lost_end = lost_end;
            __atomic_add_fetch(&skylark_faults, 1, __ATOMIC_SEQ_CST);
            return 1;
        }
        return 0;
    }

    static void skylark_handle(int number, siginfo_t* info, void* context) {
        int saved = errno;
        (void) number; (void) context;
        /* Not in a watched range: restore the previous handler, which gets the same fault again. */
        if (!skylark_replace((uintptr_t) info->si_addr)) sigaction(SIGBUS, &skylark_before, NULL);
        errno = saved;
    }

    static int skylark_install(void) {
        struct sigaction action;
        if (skylark_is_installed) return 0;
        skylark_page = (uintptr_t) sysconf(_SC_PAGESIZE);
        memset(&action, 0, sizeof action);
        action.sa_sigaction = skylark_handle;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGBUS, &action, &skylark_before) != 0) return errno;
        skylark_is_installed = 1;
        return 0;
    }

    static int skylark_watch(void* begin, Py_ssize_t size) {
        int n = 0;
        while (n < skylark_used && skylark_ranges[n].begin) n++;
        if (n == SKYLARK_RANGES) return -1;
        skylark_ranges[n].end = (uintptr_t) begin + (uintptr_t) size;
        skylark_ranges[n].lost_begin = skylark_ranges[n].lost_end = 0;
        skylark_ranges[n].begin = (uintptr_t) begin;
        if (n == skylark_used) skylark_used++;
        return n;
    }

    static void skylark_touch(int slot, int64_t at) {
        (void) *(volatile unsigned char*) (skylark_ranges[slot].begin + (uintptr_t) at);
    }
    """
    ctypedef struct skylark_range:
        size_t begin
        size_t end
        long long lost_begin
        long long lost_end
    skylark_range skylark_ranges[16384]
    long long skylark_faults
    int skylark_install() noexcept
    int skylark_watch(void* begin, Py_ssize_t size) noexcept
    void skylark_touch(int slot, long long at) noexcept
