/* Preloaded into a broker process: journals the writes and syncs of its log, and makes syncs slow or failing on demand.

   Environment: OBSERVED_DISK is a directory with two files.
     journal   appended here: one struct entry for each write and sync of a file in a directory named commitlog. Each
               entry is one write call, so a process that is killed leaves whole entries only.
     order     read before each sync: "slow 3000" delays it by that many ms, "fail" makes it return EIO without a sync,
               "fail-log" does so for segments of the log only, and an empty or missing file does nothing.

   Python counterpart: tests/harness/observed_disk.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG "/commitlog/"

enum kind { WRITE = 1, SYNC = 2 };

struct entry {
    int64_t kind;
    int64_t begin_ns; /* CLOCK_MONOTONIC, before the call */
    int64_t end_ns;   /* after it */
    int64_t segment;  /* the offset in the file's name */
    int64_t at;       /* WRITE: first byte within the segment */
    int64_t size;     /* WRITE: bytes written */
};

static int journal = -1;
static char order[PATH_MAX];

__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("OBSERVED_DISK");
    char path[PATH_MAX];
    if (directory == NULL)
        return;
    snprintf(path, sizeof path, "%s/journal", directory);
    snprintf(order, sizeof order, "%s/order", directory);
    journal = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (journal < 0) {
        perror(path);
        _exit(70);
    }
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The offset in the name of a segment of the log; -1 for all other files. */
static int64_t segment_of(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0)
        return -1;
    path[size] = 0;
    const char *name = strstr(path, LOG);
    return name == NULL ? -1 : strtoll(name + strlen(LOG), NULL, 10);
}

static void note(enum kind kind, int64_t begin_ns, int64_t segment, int64_t at, int64_t size)
{
    struct entry entry = {kind, begin_ns, now_ns(), segment, at, size};
    if (write(journal, &entry, sizeof entry) != sizeof entry) {
        perror("the journal of the disk");
        _exit(70);
    }
}

static ssize_t written(const char *name, int fd, const void *data, size_t size, off_t at)
{
    ssize_t (*call)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, name);
    int64_t begin_ns = now_ns();
    ssize_t done = call(fd, data, size, at);
    int problem = errno;
    int64_t segment = journal < 0 || done <= 0 ? -1 : segment_of(fd);
    if (segment >= 0)
        note(WRITE, begin_ns, segment, at, done);
    errno = problem;
    return done;
}

/* Carry out the order for a sync of this segment, or of another file (-1). Return whether the sync has to fail. */
static int must_fail(int64_t segment)
{
    char text[32] = "";
    int fd = open(order, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size > 5 && strncmp(text, "slow ", 5) == 0)
        usleep(1000 * (useconds_t)strtol(text + 5, NULL, 10));
    return size >= 0 && (strcmp(text, "fail") == 0 || (segment >= 0 && strcmp(text, "fail-log") == 0));
}

static int synced(const char *name, int fd)
{
    int (*call)(int) = dlsym(RTLD_NEXT, name);
    if (journal < 0)
        return call(fd);
    int64_t begin_ns = now_ns(), segment = segment_of(fd);
    if (must_fail(segment)) {
        errno = EIO;
        return -1;
    }
    int done = call(fd), problem = errno;
    if (done == 0 && segment >= 0)
        note(SYNC, begin_ns, segment, 0, 0);
    errno = problem;
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return written("pwrite", fd, data, size, at); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return written("pwrite64", fd, data, size, at); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
int fsync(int fd) { return synced("fsync", fd); }
