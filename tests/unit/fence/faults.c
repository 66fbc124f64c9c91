// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fence/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    bool is_armed;
    bool is_spared;
    int left; // calls until the one that fails; below 1: it has come
    int code;
    const char *name;
} faults = {.name = ""};

void faults_arm(int n, int code)
{
    faults.left = n;
    faults.code = code;
    faults.name = "";
    faults.is_armed = n > 0;
}

void faults_spare(bool is_spared)
{
    faults.is_spared = is_spared;
}

bool faults_disarm(void)
{
    faults.is_armed = false;
    return faults.name[0] != '\0';
}

const char *faults_hit(void)
{
    return faults.name;
}

static bool fails(const char *name)
{
    if (!faults.is_armed || faults.is_spared || faults.name[0] != '\0' || --faults.left > 0)
        return false;
    faults.name = name;
    errno = faults.code;
    return true;
}

// A function pointer out of dlsym, which C cannot cast.
static void find(const char *name, void *ret_fn)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    if (!symbol)
        abort();
    memcpy(ret_fn, &symbol, sizeof(symbol));
}

// What takes a variable list of arguments, or must not be looked up, goes to the kernel as it
// is.
int open(const char *path, int flags, ...)
{
    va_list args;
    int mode = 0;

    va_start(args, flags);
    if (flags & O_CREAT)
        mode = va_arg(args, int);
    va_end(args);
    return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int prctl(int option, ...)
{
    va_list args;
    unsigned long value = 0;

    va_start(args, option);
    value = va_arg(args, unsigned long);
    va_end(args);
    return fails("prctl") ? -1 : (int)syscall(SYS_prctl, option, value, 0, 0, 0);
}

int access(const char *path, int mode)
{
    return fails("access") ? -1 : (int)syscall(SYS_access, path, mode);
}

ssize_t read(int fd, void *buf, size_t size)
{
    return fails("read") ? -1 : syscall(SYS_read, fd, buf, size);
}

ssize_t write(int fd, const void *buf, size_t size)
{
    return fails("write") ? -1 : syscall(SYS_write, fd, buf, size);
}

ssize_t pread(int fd, void *buf, size_t size, off_t at)
{
    return fails("pread") ? -1 : syscall(SYS_pread64, fd, buf, size, at);
}

ssize_t pwrite(int fd, const void *buf, size_t size, off_t at)
{
    return fails("pwrite") ? -1 : syscall(SYS_pwrite64, fd, buf, size, at);
}

int ftruncate(int fd, off_t size)
{
    return fails("ftruncate") ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int flock(int fd, int operation)
{
    return fails("flock") ? -1 : (int)syscall(SYS_flock, fd, operation);
}

ssize_t getdents64(int fd, void *buf, size_t size)
{
    return fails("getdents64") ? -1 : syscall(SYS_getdents64, fd, buf, size);
}

ssize_t getrandom(void *buf, size_t size, unsigned flags)
{
    return fails("getrandom") ? -1 : syscall(SYS_getrandom, buf, size, flags);
}

int pipe2(int fds[2], int flags)
{
    return fails("pipe2") ? -1 : (int)syscall(SYS_pipe2, fds, flags);
}

int timerfd_create(clockid_t clock, int flags)
{
    return fails("timerfd_create") ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int socket(int family, int type, int protocol)
{
    return fails("socket") ? -1 : (int)syscall(SYS_socket, family, type, protocol);
}

int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    return fails("bind") ? -1 : (int)syscall(SYS_bind, fd, address, size);
}

int listen(int fd, int backlog)
{
    return fails("listen") ? -1 : (int)syscall(SYS_listen, fd, backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    return fails("accept4") ? -1 : (int)syscall(SYS_accept4, fd, address, size, flags);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    return fails("getsockopt") ? -1
                               : (int)syscall(SYS_getsockopt, fd, level, name, value, size);
}

ssize_t recv(int fd, void *buf, size_t size, int flags)
{
    return fails("recv") ? -1 : syscall(SYS_recvfrom, fd, buf, size, flags, NULL, NULL);
}

ssize_t send(int fd, const void *buf, size_t size, int flags)
{
    return fails("send") ? -1 : syscall(SYS_sendto, fd, buf, size, flags, NULL, 0);
}

// Locks nothing: a sanitizer's shadow is terabytes, and libc's own does nothing either there.
int mlockall(int flags)
{
    (void)flags;
    return fails("mlockall") ? -1 : 0;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    return fails("waitpid") ? -1 : (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
}

// libc's own has more to do than the kernel's.
pid_t fork(void)
{
    pid_t (*real)(void) = NULL;

    if (fails("fork"))
        return -1;
    find("fork", &real);
    return real();
}

int signalfd(int fd, const sigset_t *set, int flags)
{
    int (*real)(int, const sigset_t *, int) = NULL;

    if (fails("signalfd"))
        return -1;
    find("signalfd", &real);
    return real(fd, set, flags);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    int (*real)(int, const sigset_t *, sigset_t *) = NULL;

    if (fails("sigprocmask"))
        return -1;
    find("sigprocmask", &real);
    return real(how, set, old);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
          const sigset_t *mask)
{
    int (*real)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *) = NULL;

    if (fails("ppoll"))
        return -1;
    find("ppoll", &real);
    return real(fds, count, timeout, mask);
}
