// SPDX-License-Identifier: Apache-2.0
#pragma once
// seamlibc: what agent/kube and k8s/watch.c are compiled against in place of a few calls of
// libc and base/clock.h (see meson.build): the world's clock, chance and file.

#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#include "base/clock.h"

struct instant seam_clock_now(void);
int seam_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t seam_getrandom(void *bytes, size_t size, unsigned flags);
int seam_open(const char *path, int flags, ...);
ssize_t seam_read(int fd, void *to, size_t size);
ssize_t seam_write(int fd, const void *bytes, size_t size);
int seam_close(int fd);
int seam_unlink(const char *path);
int seam_rename(const char *from, const char *to);
