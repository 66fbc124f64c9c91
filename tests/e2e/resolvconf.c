// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: who opens /etc/resolv.conf gets the file that RESOLV_CONF names, so that a
// test has a name server of its own without another mount namespace.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef int open_fn(const char *path, int flags, ...);

int open(const char *path, int flags, ...)
{
    open_fn *real = (open_fn *)dlsym(RTLD_NEXT, "open");
    const char *other = getenv("RESOLV_CONF");
    va_list args;
    mode_t mode = 0;

    va_start(args, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(args, mode_t);
    va_end(args);
    if (other && strcmp(path, "/etc/resolv.conf") == 0)
        path = other;
    return real(path, flags, mode);
}

// Offsets have 64 bits in both.
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
