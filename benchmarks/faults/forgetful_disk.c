/* Records unflushed changes of one process, by LD_PRELOAD, so that they can be undone after a kill.
 *
 * A kill alone loses nothing: the kernel keeps written data. This library writes a note of the state before each
 * write and each change of a name, and then makes the change at once, so that the process reads its own writes,
 * even through maps. fdatasync and fsync of a file end its earlier notes; notes of names end when each folder
 * concerned is synced. After the end of the process forgetful.py undoes the remaining notes, newest first. The
 * library keeps no data in memory, and reads need no look-up.
 *
 * FORGETFUL_DISK is the folder whose unflushed changes are recorded. FORGETFUL_NOTES is an empty folder beside it,
 * for `journal` and, under a number, a second name of each file concerned, so that its content outlives a removal
 * or a replacement. Both variables are read when the first file is opened: a forked process may set them.
 *
 * A change that cannot be noted ends the process: a writable map, a copy into a file within the kernel.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define DESCRIPTORS 65536
#define FILES 65536
#define MAGIC 0x464f5247u

enum { CONTENT = 1, NAMES, MOVED_FOLDER, FILE_SYNCED, FOLDER_SYNCED, ALL_SYNCED };

/* The numbers of a note are in the machine's byte order; `more` bytes follow. CONTENT has the file's number, the
 * offset, the size of the file before, and the number of bytes there before (all zero when none follow). The
 * _SYNCED notes have the file's number, and the number of notes when the flush began. */
struct note {
    uint32_t magic, kind;
    int64_t file, offset, size, length, more;
};

static char root[PATH_MAX], notes[PATH_MAX];
static size_t root_length;
static int journal = -1;
static int64_t noted, file_count;
static int32_t file_of[DESCRIPTORS];
static struct { dev_t device; ino_t inode; int32_t file; } known[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The original function of that name. */
#define NEXT(name) \
    static __typeof__(&name) name##_next; \
    if (!name##_next) \
        name##_next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int real_open(const char *path, int flags, int mode) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void give_up(const char *what) {
    dprintf(2, "forgetful_disk: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static int ready(void) {
    if (journal >= 0)
        return 1;
    const char *disk = getenv("FORGETFUL_DISK"), *beside = getenv("FORGETFUL_NOTES");
    if (!disk || !beside)
        return 0;
    char path[PATH_MAX + 16];
    if (!realpath(disk, root) || !realpath(beside, notes))
        give_up("no such folder");
    root_length = strlen(root);
    snprintf(path, sizeof path, "%s/journal", notes);
    int fd = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        give_up(path);
    journal = fd;
    return 1;
}

static void note(struct note it, const void *more, size_t length) {
    struct iovec parts[2] = {{&it, sizeof it}, {(void *)more, length}};
    it.magic = MAGIC;
    it.more = (int64_t)length;
    /* Not through the PLT: the journal's own writes are not noted. A short write means that the process is
     * being killed. */
    if (syscall(SYS_writev, journal, parts, 2) != (long)(sizeof it + length))
        give_up("cannot write the journal");
    noted++;
}

/* -- names ----------------------------------------------------------------------------------------------- */

static int inside(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* The folder of a path, without links, and the name in it; 0 if the path is outside of FORGETFUL_DISK. */
static int locate(int at, const char *path, char *folder, char *name) {
    char whole[PATH_MAX * 2], from[64];
    if (!ready() || !path)
        return 0;
    if (path[0] == '/' || at == AT_FDCWD) {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        char base[PATH_MAX];
        snprintf(from, sizeof from, "/proc/self/fd/%d", at);
        ssize_t length = readlink(from, base, sizeof base - 1);
        if (length < 0)
            return 0;
        base[length] = 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    char *last = strrchr(whole, '/');
    const char *own = last ? last + 1 : whole;
    if (strlen(own) > NAME_MAX)
        return 0;
    strcpy(name, own);
    if (last)
        *last = 0;
    if (!realpath(!last ? "." : *whole ? whole : "/", folder))
        return 0;
    return inside(folder) && name[0];
}

/* The number of a file; a new number also creates the file's second name. `path` is followed if it is a link. */
static int32_t number_of(const struct stat *file, const char *path) {
    size_t at = (size_t)(file->st_ino * 2654435761u) % FILES;
    while (known[at].file) {
        if (known[at].inode == file->st_ino && known[at].device == file->st_dev)
            return known[at].file;
        at = (at + 1) % FILES;
    }
    char second[PATH_MAX + 32];
    if (++file_count > FILES / 2)
        give_up("too many files");
    snprintf(second, sizeof second, "%s/%lld", notes, (long long)file_count);
    if (linkat(AT_FDCWD, path, AT_FDCWD, second, AT_SYMLINK_FOLLOW) != 0)
        give_up(path);
    known[at].device = file->st_dev;
    known[at].inode = file->st_ino;
    known[at].file = (int32_t)file_count;
    return known[at].file;
}

/* Writes the note of a changed name: folder, name, and its previous target: "-", "folder", or a file's number. */
static size_t before(char *into, const char *folder, const char *name) {
    char path[PATH_MAX * 2], had[32] = "-";
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (lstat(path, &status) == 0) {
        if (S_ISDIR(status.st_mode))
            strcpy(had, "folder");
        else
            snprintf(had, sizeof had, "%d", number_of(&status, path));
    }
    return (size_t)sprintf(into, "%s%c%s%c%s", folder, 0, name, 0, had) + 1;
}

static void note_name(const char *folder, const char *name) {
    char parts[PATH_MAX * 2];
    note((struct note){.kind = NAMES}, parts, before(parts, folder, name));
}

/* -- contents -------------------------------------------------------------------------------------------- */

static int32_t file_at(int fd) {
    return fd >= 0 && fd < DESCRIPTORS ? __atomic_load_n(&file_of[fd], __ATOMIC_ACQUIRE) : 0;
}

/* Note the content of a file from `offset` on, before it is overwritten or cut off. */
static void note_content(int fd, int64_t offset, int64_t length) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        give_up("fstat");
    int64_t there = status.st_size - offset < length ? status.st_size - offset : length;
    struct note it = {.kind = CONTENT, .file = file_at(fd), .offset = offset, .size = status.st_size};
    if (there <= 0) {
        note(it, NULL, 0);
        return;
    }
    char *old = malloc((size_t)there);
    /* The descriptor may be for writing only. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int reading = real_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (!old || reading < 0)
        give_up("cannot read what is overwritten");
    int64_t have = 0;
    while (have < there) {
        ssize_t more = pread(reading, old + have, (size_t)(there - have), offset + have);
        if (more <= 0)
            give_up("cannot read what is overwritten");
        have += more;
    }
    syscall(SYS_close, reading);
    int zeros = !old[0] && !memcmp(old, old + 1, (size_t)there - 1);
    it.length = there;
    note(it, old, zeros ? 0 : (size_t)there);
    free(old);
}

#define WRITES(fd, offset, length, call) \
    do { \
        if (!file_at(fd)) \
            return call; \
        pthread_mutex_lock(&lock); \
        note_content(fd, offset, length); \
        __typeof__(call) result = call; \
        int error = errno; \
        pthread_mutex_unlock(&lock); \
        errno = error; \
        return result; \
    } while (0)

static int64_t position(int fd) {
    struct stat status;
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_APPEND) && fstat(fd, &status) == 0)
        return status.st_size;
    return lseek(fd, 0, SEEK_CUR);
}

static int64_t total(const struct iovec *parts, int count) {
    int64_t length = 0;
    for (int at = 0; at < count; at++)
        length += (int64_t)parts[at].iov_len;
    return length;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    NEXT(pwrite64);
    WRITES(fd, offset, (int64_t)length, pwrite64_next(fd, data, length, offset));
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    return pwrite64(fd, data, length, offset);
}

ssize_t write(int fd, const void *data, size_t length) {
    NEXT(write);
    WRITES(fd, position(fd), (int64_t)length, write_next(fd, data, length));
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    WRITES(fd, position(fd), total(parts, count), writev_next(fd, parts, count));
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    NEXT(pwritev64);
    WRITES(fd, offset, total(parts, count), pwritev64_next(fd, parts, count, offset));
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return pwritev64(fd, parts, count, offset);
}

int ftruncate64(int fd, off64_t size) {
    NEXT(ftruncate64);
    WRITES(fd, size, INT64_MAX, ftruncate64_next(fd, size));
}

int ftruncate(int fd, off_t size) {
    return ftruncate64(fd, size);
}

int posix_fallocate64(int fd, off64_t offset, off64_t length) {
    NEXT(posix_fallocate64);
    /* The bytes do not change; the file may grow. */
    WRITES(fd, INT64_MAX, 0, posix_fallocate64_next(fd, offset, length));
}

int posix_fallocate(int fd, off_t offset, off_t length) {
    return posix_fallocate64(fd, offset, length);
}

/* -- flushes --------------------------------------------------------------------------------------------- */

static int64_t count_notes(void) {
    pthread_mutex_lock(&lock);
    int64_t count = noted;
    pthread_mutex_unlock(&lock);
    return count;
}

static void note_synced(uint32_t kind, int32_t file, int64_t count, const char *folder) {
    pthread_mutex_lock(&lock);
    note((struct note){.kind = kind, .file = file, .offset = count}, folder, folder ? strlen(folder) : 0);
    pthread_mutex_unlock(&lock);
}

static void synced(int fd, int64_t count) {
    int error = errno;
    struct stat status;
    char path[64], folder[PATH_MAX];
    if (file_at(fd)) {
        note_synced(FILE_SYNCED, file_at(fd), count, NULL);
    } else if (journal >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (realpath(path, folder) && inside(folder))
            note_synced(FOLDER_SYNCED, 0, count, folder);
    }
    errno = error;
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    int64_t count = count_notes();
    int result = fdatasync_next(fd);
    if (result == 0)
        synced(fd, count);
    return result;
}

int fsync(int fd) {
    NEXT(fsync);
    int64_t count = count_notes();
    int result = fsync_next(fd);
    if (result == 0)
        synced(fd, count);
    return result;
}

int syncfs(int fd) {
    NEXT(syncfs);
    int64_t count = count_notes();
    int result = syncfs_next(fd);
    if (result == 0 && journal >= 0)
        note_synced(ALL_SYNCED, 0, count, NULL);
    return result;
}

void sync(void) {
    NEXT(sync);
    int64_t count = count_notes();
    sync_next();
    if (journal >= 0)
        note_synced(ALL_SYNCED, 0, count, NULL);
}

/* -- open and close -------------------------------------------------------------------------------------- */

static int open_noted(int at, const char *path, int flags, int mode) {
    char folder[PATH_MAX], name[NAME_MAX + 1];
    struct stat status;
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (!writes || (flags & O_PATH) || !locate(at, path, folder, name))
        return (int)syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&lock);
    if ((flags & O_CREAT) && fstatat(at, path, &status, 0) != 0)
        note_name(folder, name);
    /* O_TRUNC is applied below, with a descriptor by which the content can be noted. */
    int fd = (int)syscall(SYS_openat, at, path, flags & ~O_TRUNC, mode);
    int error = errno;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        char own[64];
        if (fd >= DESCRIPTORS)
            give_up("too many descriptors");
        snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
        __atomic_store_n(&file_of[fd], number_of(&status, own), __ATOMIC_RELEASE);
        if ((flags & O_TRUNC) && status.st_size) {
            note_content(fd, 0, INT64_MAX);
            if (syscall(SYS_ftruncate, fd, 0L) != 0)
                give_up("cannot cut a file off");
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE(flags) \
    int mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_noted(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_noted(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags)
    return open_noted(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(flags)
    return open_noted(at, path, flags, mode);
}

int close(int fd) {
    NEXT(close);
    if (fd >= 0 && fd < DESCRIPTORS)
        __atomic_store_n(&file_of[fd], 0, __ATOMIC_RELEASE);
    return close_next(fd);
}

/* -- changes of names ------------------------------------------------------------------------------------ */

#define CHANGES(at, path, call) \
    do { \
        char folder[PATH_MAX], name[NAME_MAX + 1]; \
        if (!locate(at, path, folder, name)) \
            return call; \
        pthread_mutex_lock(&lock); \
        note_name(folder, name); \
        int result = call, error = errno; \
        pthread_mutex_unlock(&lock); \
        errno = error; \
        return result; \
    } while (0)

int unlinkat(int at, const char *path, int flags) {
    CHANGES(at, path, (int)syscall(SYS_unlinkat, at, path, flags));
}

int unlink(const char *path) {
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path) {
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int at, const char *path, mode_t mode) {
    CHANGES(at, path, (int)syscall(SYS_mkdirat, at, path, mode));
}

int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}

int renameat2(int from, const char *source, int to, const char *target, unsigned flags) {
    char folders[2][PATH_MAX], names[2][NAME_MAX + 1], parts[PATH_MAX * 4];
    int in_source = locate(from, source, folders[0], names[0]);
    int in_target = locate(to, target, folders[1], names[1]);
    if (!in_source && !in_target)
        return (int)syscall(SYS_renameat2, from, source, to, target, flags);
    if (!in_source || !in_target || flags)
        give_up("a move into the folder or out of it, or an exchange");
    struct stat status;
    pthread_mutex_lock(&lock);
    if (fstatat(from, source, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode)) {
        size_t length = (size_t)sprintf(
            parts, "%s%c%s%c%s%c%s", folders[0], 0, names[0], 0, folders[1], 0, names[1]) + 1;
        note((struct note){.kind = MOVED_FOLDER}, parts, length);
    } else {
        /* One note for both names: a rename is undone as a whole or not at all. */
        size_t length = before(parts, folders[0], names[0]);
        length += before(parts + length, folders[1], names[1]);
        note((struct note){.kind = NAMES}, parts, length);
    }
    int result = (int)syscall(SYS_renameat2, from, source, to, target, flags), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int renameat(int from, const char *source, int to, const char *target) {
    return renameat2(from, source, to, target, 0);
}

int rename(const char *source, const char *target) {
    return renameat2(AT_FDCWD, source, AT_FDCWD, target, 0);
}

/* -- changes that cannot be noted ------------------------------------------------------------------------ */

static void refuse(int fd, const char *what) {
    if (file_at(fd)) {
        errno = ENOTSUP;
        give_up(what);
    }
}

void *mmap64(void *where, size_t length, int protection, int flags, int fd, off64_t offset) {
    NEXT(mmap64);
    if ((flags & MAP_SHARED) && (protection & PROT_WRITE))
        refuse(fd, "a writable map");
    return mmap64_next(where, length, protection, flags, fd, offset);
}

void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t offset) {
    return mmap64(where, length, protection, flags, fd, offset);
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t count) {
    NEXT(sendfile64);
    refuse(to, "sendfile into a file");
    return sendfile64_next(to, from, offset, count);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count) {
    return sendfile64(to, from, offset, count);
}

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *into, size_t length, unsigned flags) {
    NEXT(copy_file_range);
    refuse(to, "copy_file_range");
    return copy_file_range_next(from, at, to, into, length, flags);
}
