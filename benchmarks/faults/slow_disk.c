/* Makes fdatasync and fsync of one process take longer, by LD_PRELOAD.
 *
 * SLOW_DISK names a file of eight bytes, which is mapped: the microseconds by which each call is delayed. A write
 * to the file changes the delay of the running process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *delay_us;

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("SLOW_DISK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof *delay_us, PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED)
        delay_us = found;
    close(fd);
}

static void wait_for_the_disk(void) {
    if (delay_us && *delay_us > 0)
        usleep((useconds_t)*delay_us);
}

int fdatasync(int fd) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_the_disk();
    return next(fd);
}

int fsync(int fd) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_for_the_disk();
    return next(fd);
}
