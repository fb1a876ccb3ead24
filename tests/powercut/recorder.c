/* Records what a process does to the files below one directory, and what passes over its sockets, in one order.

   Preloaded with POWERCUT_ROOT (a real path) and POWERCUT_EVENTS (the file that events are appended to). A change is
   made and recorded under one lock, so the file has them in the order in which they took effect. A sync is recorded
   when it begins, and again when it has succeeded: it covers what was recorded before it began. What is sent is
   recorded before it is sent, what is received after. Calls that change files in a way that this does not follow are
   recorded as UNSUPPORTED. Reads of files are not recorded. */

#define _GNU_SOURCE
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, TRUNCATE, SYNC_BEGINS, SYNC_DONE, CREATE, MKDIR, RENAME, UNLINK, SEND, RECEIVE, ACCEPT, UNSUPPORTED };

struct event { /* then the path and the data; recording.py reads the same */
    uint32_t kind, path_bytes;
    uint64_t inode;
    int64_t position;
    uint64_t data_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_bytes;
static int events = -1;

__attribute__((constructor)) static void begin(void) {
    const char *directory = getenv("POWERCUT_ROOT"), *path = getenv("POWERCUT_EVENTS");
    if (directory == NULL || path == NULL) return;
    snprintf(root, sizeof root, "%s", directory);
    root_bytes = strlen(root);
    int opened = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    events = fcntl(opened, F_DUPFD_CLOEXEC, 900); /* out of the way of programs that expect small numbers */
    syscall(SYS_close, opened);
}

static void record(int kind, uint64_t inode, int64_t position, const char *path, const void *data, size_t bytes) {
    struct event event = {kind, strlen(path), inode, position, bytes};
    struct iovec parts[3] = {{&event, sizeof event}, {(void *)path, event.path_bytes}, {(void *)data, bytes}};
    if (syscall(SYS_writev, events, parts, 3) != (ssize_t)(sizeof event + event.path_bytes + bytes)) {
        static const char said[] = "powercut: an event could not be recorded\n";
        syscall(SYS_write, 2, said, sizeof said - 1);
        _exit(70);
    }
}

static int covers(const char *path) {
    return events >= 0 && strncmp(path, root, root_bytes) == 0 && (path[root_bytes] == '/' || path[root_bytes] == 0);
}

/* The path of a descriptor, as the kernel has it; "" if it is not below the root. */
static const char *path_of(int descriptor, char *path) {
    char link[40];
    int errno_before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t bytes = events < 0 ? -1 : syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[bytes < 0 ? 0 : bytes] = 0;
    if (!covers(path)) path[0] = 0;
    errno = errno_before;
    return path;
}

/* The whole path of a name in a directory that is open; "" if it is not below the root. */
static const char *path_at(int directory, const char *name, char *path) {
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else if (directory == AT_FDCWD) {
        char here[PATH_MAX];
        syscall(SYS_getcwd, here, sizeof here);
        snprintf(path, PATH_MAX, "%.2000s/%.2000s", here, name);
    } else {
        char there[PATH_MAX];
        path_of(directory, there);
        snprintf(path, PATH_MAX, "%.2000s/%.2000s", there, name);
    }
    if (!covers(path)) path[0] = 0;
    return path;
}

static struct stat status_of(int descriptor) {
    struct stat found = {0};
    int errno_before = errno;
    fstat(descriptor, &found);
    errno = errno_before;
    return found;
}

/* Sockets on which a call may wait are left out: it would wait with the lock. So are those of no network: the handler of
   a signal writes to one, perhaps in a thread that has the lock. */
static int is_recorded_socket(int descriptor) {
    int domain = 0, errno_before = errno;
    socklen_t length = sizeof domain;
    if (events < 0 || !S_ISSOCK(status_of(descriptor).st_mode)) return 0;
    getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    errno = errno_before;
    return domain == AF_INET && syscall(SYS_fcntl, descriptor, F_GETFL) & O_NONBLOCK;
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

static int opened(int directory, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !path_at(directory, name, path)[0])
        return syscall(SYS_openat, directory, name, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0;
    int descriptor = syscall(SYS_openat, directory, name, flags, mode);
    if (descriptor >= 0) {
        int errno_before = errno;
        uint64_t inode = status_of(descriptor).st_ino;
        if (is_new) record(CREATE, inode, 0, path, NULL, 0);
        else if (flags & O_TRUNC) record(TRUNCATE, inode, 0, path, NULL, 0);
        errno = errno_before;
    }
    pthread_mutex_unlock(&lock);
    return descriptor;
}

#define MODE(flags, last) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list arguments; \
        va_start(arguments, last); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

int open(const char *name, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags, flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags, flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags, flags) return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* -- writing and reading -------------------------------------------------------------------------------------------------- */

static void *gathered(const struct iovec *parts, int count, size_t bytes) {
    char *data = malloc(bytes + 1), *end = data;
    for (int i = 0; i < count && bytes; i++) {
        size_t part = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
        memcpy(end, parts[i].iov_base, part);
        end += part;
        bytes -= part;
    }
    return data;
}

static ssize_t sent(int descriptor, const struct msghdr *message, int flags) {
    if (!is_recorded_socket(descriptor)) return syscall(SYS_sendmsg, descriptor, message, flags);
    pthread_mutex_lock(&lock);
    ssize_t bytes = syscall(SYS_sendmsg, descriptor, message, flags);
    if (bytes > 0) {
        void *data = gathered(message->msg_iov, message->msg_iovlen, bytes);
        record(SEND, status_of(descriptor).st_ino, 0, "", data, bytes);
        free(data);
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

static ssize_t received(int descriptor, const void *data, ssize_t bytes, int flags) {
    int errno_before = errno;
    if (bytes > 0 && !(flags & MSG_PEEK) && is_recorded_socket(descriptor)) {
        pthread_mutex_lock(&lock);
        record(RECEIVE, status_of(descriptor).st_ino, 0, "", data, bytes);
        pthread_mutex_unlock(&lock);
    }
    errno = errno_before;
    return bytes;
}

/* `position` below 0: where the descriptor stands. */
static ssize_t written(int descriptor, const struct iovec *parts, int count, off_t position) {
    char path[PATH_MAX];
    struct msghdr message = {NULL, 0, (struct iovec *)parts, count, NULL, 0, 0};
    if (is_recorded_socket(descriptor)) return sent(descriptor, &message, 0);
    if (!path_of(descriptor, path)[0])
        return position < 0 ? syscall(SYS_writev, descriptor, parts, count)
                            : syscall(SYS_pwritev, descriptor, parts, count, (long)position, 0L);
    pthread_mutex_lock(&lock);
    struct stat before = status_of(descriptor);
    off_t at = position;
    if (position < 0)
        at = syscall(SYS_fcntl, descriptor, F_GETFL) & O_APPEND ? before.st_size : syscall(SYS_lseek, descriptor, 0, SEEK_CUR);
    ssize_t bytes = position < 0 ? syscall(SYS_writev, descriptor, parts, count)
                                 : syscall(SYS_pwritev, descriptor, parts, count, (long)position, 0L);
    if (bytes > 0) {
        void *data = gathered(parts, count, bytes);
        record(WRITE, before.st_ino, at, path, data, bytes);
        free(data);
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

ssize_t write(int descriptor, const void *data, size_t bytes) {
    struct iovec part = {(void *)data, bytes};
    return written(descriptor, &part, 1, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t bytes, off_t position) {
    struct iovec part = {(void *)data, bytes};
    return written(descriptor, &part, 1, position);
}
ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off_t position) {
    return pwrite(descriptor, data, bytes, position);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) { return written(descriptor, parts, count, -1); }
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position) {
    return written(descriptor, parts, count, position);
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off_t position) {
    return written(descriptor, parts, count, position);
}

static int truncated(int descriptor, off_t size) {
    char path[PATH_MAX];
    path_of(descriptor, path);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_ftruncate, descriptor, size);
    if (result == 0 && path[0]) record(TRUNCATE, status_of(descriptor).st_ino, size, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int descriptor, off_t size) { return truncated(descriptor, size); }
int ftruncate64(int descriptor, off_t size) { return truncated(descriptor, size); }

/* -- what is not followed ---------------------------------------------------------------------------------------- */

static void not_followed(const char *path, const char *what) {
    int errno_before = errno;
    pthread_mutex_lock(&lock);
    if (path[0]) record(UNSUPPORTED, 0, 0, path, what, strlen(what));
    pthread_mutex_unlock(&lock);
    errno = errno_before;
}

static void not_followed_on(int descriptor, const char *what) {
    char path[PATH_MAX];
    not_followed(path_of(descriptor, path), what);
}

static int allocated(int descriptor, int mode, off_t position, off_t bytes) {
    if (mode != FALLOC_FL_KEEP_SIZE) not_followed_on(descriptor, "fallocate"); /* space alone is nothing to lose */
    return syscall(SYS_fallocate, descriptor, mode, position, bytes);
}

int fallocate(int descriptor, int mode, off_t position, off_t bytes) { return allocated(descriptor, mode, position, bytes); }
int fallocate64(int descriptor, int mode, off_t position, off_t bytes) { return allocated(descriptor, mode, position, bytes); }

static void *mapped(void *at, size_t bytes, int protection, int flags, int descriptor, off_t position) {
    if (descriptor >= 0 && protection & PROT_WRITE && flags & MAP_SHARED) not_followed_on(descriptor, "mmap");
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, descriptor, position);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int descriptor, off_t position) {
    return mapped(at, bytes, protection, flags, descriptor, position);
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int descriptor, off_t position) {
    return mapped(at, bytes, protection, flags, descriptor, position);
}

ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t bytes, unsigned flags) {
    not_followed_on(to, "copy_file_range");
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, bytes, flags);
}
ssize_t sendfile(int to, int from, off_t *position, size_t bytes) {
    not_followed_on(to, "sendfile");
    return syscall(SYS_sendfile, to, from, position, bytes);
}
ssize_t sendfile64(int to, int from, off_t *position, size_t bytes) { return sendfile(to, from, position, bytes); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    char path[PATH_MAX];
    not_followed(path_at(to_at, to, path), "link");
    return syscall(SYS_linkat, from_at, from, to_at, to, flags);
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* -- syncs ------------------------------------------------------------------------------------------------------- */

static int synced(int descriptor, long call) {
    char path[PATH_MAX];
    uint64_t inode = status_of(descriptor).st_ino;
    if (!path_of(descriptor, path)[0]) return syscall(call, descriptor);
    pthread_mutex_lock(&lock);
    record(SYNC_BEGINS, inode, 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    int result = syscall(call, descriptor);
    if (result != 0) return result;
    pthread_mutex_lock(&lock);
    record(SYNC_DONE, inode, 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int descriptor) { return synced(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return synced(descriptor, SYS_fdatasync); }

/* -- names ------------------------------------------------------------------------------------------------------- */

static int renamed(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char source[PATH_MAX], target[PATH_MAX];
    path_at(from_at, from, source);
    path_at(to_at, to, target);
    if (flags || !source[0] != !target[0]) not_followed(source[0] ? source : target, "renameat2");
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    if (result == 0 && source[0] && target[0]) record(RENAME, 0, 0, source, target, strlen(target));
    pthread_mutex_unlock(&lock);
    return result;
}

int rename(const char *from, const char *to) { return renamed(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_at, const char *from, int to_at, const char *to) { return renamed(from_at, from, to_at, to, 0); }
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    return renamed(from_at, from, to_at, to, flags);
}

int unlinkat(int at, const char *name, int flags) {
    char path[PATH_MAX];
    path_at(at, name, path);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_unlinkat, at, name, flags);
    if (result == 0 && path[0]) record(UNLINK, 0, 0, path, NULL, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    int result = unlinkat(AT_FDCWD, name, 0);
    return result != 0 && errno == EISDIR ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}

int mkdirat(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    struct stat made = {0};
    path_at(at, name, path);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, at, name, mode);
    if (result == 0 && path[0]) {
        lstat(path, &made);
        record(MKDIR, made.st_ino, 0, path, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* -- sockets ----------------------------------------------------------------------------------------------------- */

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) { return sent(descriptor, message, flags); }
ssize_t sendto(int descriptor, const void *data, size_t bytes, int flags, const struct sockaddr *to, socklen_t length) {
    struct iovec part = {(void *)data, bytes};
    struct msghdr message = {(void *)to, length, &part, 1, NULL, 0, 0};
    return sent(descriptor, &message, flags);
}
ssize_t send(int descriptor, const void *data, size_t bytes, int flags) {
    return sendto(descriptor, data, bytes, flags, NULL, 0);
}

ssize_t recvfrom(int descriptor, void *data, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    return received(descriptor, data, syscall(SYS_recvfrom, descriptor, data, size, flags, from, length), flags);
}
ssize_t recv(int descriptor, void *data, size_t size, int flags) { return recvfrom(descriptor, data, size, flags, NULL, NULL); }

ssize_t read(int descriptor, void *data, size_t size) {
    return received(descriptor, data, syscall(SYS_read, descriptor, data, size), 0);
}
ssize_t readv(int descriptor, const struct iovec *parts, int count) {
    ssize_t bytes = syscall(SYS_readv, descriptor, parts, count);
    if (bytes <= 0 || !is_recorded_socket(descriptor)) return bytes;
    void *data = gathered(parts, count, bytes);
    received(descriptor, data, bytes, 0);
    free(data);
    return bytes;
}

int accept4(int descriptor, struct sockaddr *from, socklen_t *length, int flags) {
    int accepted = syscall(SYS_accept4, descriptor, from, length, flags);
    if (accepted >= 0 && events >= 0) {
        pthread_mutex_lock(&lock);
        record(ACCEPT, status_of(accepted).st_ino, 0, "", NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    return accepted;
}
int accept(int descriptor, struct sockaddr *from, socklen_t *length) { return accept4(descriptor, from, length, 0); }
