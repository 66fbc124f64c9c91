// SPDX-License-Identifier: Apache-2.0
#include "fence/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_MAX_BYTES 2048 // well below PIPE_BUF: a pipe takes it whole or not at all

static int log_fd = STDERR_FILENO;
static uint64_t dropped;

void fence_log_init(void)
{
    struct stat stat = {0};
    int fd = -1;

    // A file never blocks, and meta writes to it by the same offset: opened anew, each would
    // write over the lines of the other.
    if (fstat(STDERR_FILENO, &stat) == 0 && S_ISREG(stat.st_mode))
        return;
    fd = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        log_fd = fd;
}

// Days since 1970 to a civil date (H. Hinnant's algorithm): gmtime_r would read the time zone's
// files.
static void civil_date(int64_t days, int64_t *ret_year, unsigned *ret_month, unsigned *ret_day)
{
    int64_t z = days + 719468;
    int64_t era = z / 146097;
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    *ret_day = (unsigned)(doy - (153 * mp + 2) / 5 + 1);
    *ret_month = (unsigned)(mp < 10 ? mp + 3 : mp - 9);
    *ret_year = yoe + era * 400 + (*ret_month <= 2 ? 1 : 0);
}

static int write_head(char *line, size_t size, enum fence_log_level level, const char *msg)
{
    static const char *const names[] = {"info", "warn", "error"};
    struct timespec wall = {0};
    int64_t year = 0;
    int64_t second = 0;
    unsigned month = 0;
    unsigned day = 0;

    (void)clock_gettime(CLOCK_REALTIME, &wall); // for the reader; nothing is decided by it
    civil_date(wall.tv_sec / 86400, &year, &month, &day);
    second = wall.tv_sec % 86400;
    return snprintf(line, size,
                    "ts=%04lld-%02u-%02uT%02lld:%02lld:%02lld.%06ldZ boot_ns=%lld level=%s "
                    "msg=\"%s\"",
                    (long long)year, month, day, (long long)(second / 3600),
                    (long long)(second / 60 % 60), (long long)(second % 60),
                    wall.tv_nsec / 1000, (long long)clock_now().ns, names[level], msg);
}

static void write_line(const char *line, size_t size)
{
    struct pollfd ready = {.fd = log_fd, .events = POLLOUT};

    // Only for the rare kind of stderr that could not be opened anew and may block.
    if (log_fd == STDERR_FILENO && (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLOUT))) {
        dropped++;
        return;
    }
    if (write(log_fd, line, size) < 0)
        dropped++;
}

void fence_log(enum fence_log_level level, const char *msg, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    const size_t room = sizeof(line) - 1; // for the newline
    uint64_t lost = dropped;
    size_t used = 0;
    va_list args;
    int n = write_head(line, room, level, msg);

    used = n < 0 ? 0 : (size_t)n;
    if (lost > 0 && used < room) {
        n = snprintf(line + used, room - used, " dropped=%llu", (unsigned long long)lost);
        used += n < 0 ? 0 : (size_t)n;
    }
    if (used + 1 < room) {
        line[used++] = ' ';
        va_start(args, fmt);
        n = vsnprintf(line + used, room - used, fmt, args);
        va_end(args);
        used += n < 0 ? 0 : (size_t)n;
    }
    if (used > room - 1)
        used = room - 1;
    line[used++] = '\n';
    write_line(line, used);
    if (lost > 0 && dropped == lost)
        dropped = 0;
}

const char *fence_log_quote(const char *text, char *buf, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;

    if (size < 8)
        return "\"\"";
    buf[used++] = '"';
    for (const char *p = text; *p != '\0' && used + 6 < size; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            buf[used++] = '\\';
            buf[used++] = (char)c;
        } else if (c < 0x20 || c == 0x7f) {
            buf[used++] = '\\';
            buf[used++] = 'x';
            buf[used++] = hex[c >> 4];
            buf[used++] = hex[c & 15];
        } else {
            buf[used++] = (char)c;
        }
    }
    buf[used++] = '"';
    buf[used] = '\0';
    return buf;
}
