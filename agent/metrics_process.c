// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/metrics.h"
#include "base/clock.h"

static int64_t timeval_ns(struct timeval t)
{
    return t.tv_sec * NS_PER_SEC + t.tv_usec * 1000;
}

static void write_cpu(struct prom *prom)
{
    struct rusage usage = {0};

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return;
    prom_family(prom, PROM_COUNTER, "process_cpu_seconds", "CPU time used, user and system.");
    prom_seconds(prom, PROM_NONE, timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime));
}

// The next number of "12 34 …"; *at moves behind it. 0 where there is none.
static int64_t take_number(const char **at)
{
    int64_t number = 0;

    while (**at == ' ')
        (*at)++;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        number = number * 10 + (**at - '0');
    return number;
}

static void write_memory(struct prom *prom)
{
    char text[128];
    const char *at = text;
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t total = 0;
    ssize_t len = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len <= 0)
        return;
    text[len] = '\0';
    total = take_number(&at);
    prom_one_int(prom, "process_virtual_memory_bytes", "Virtual memory.", total * page);
    prom_one_int(prom, "process_resident_memory_bytes", "Resident memory.",
                 take_number(&at) * page);
}

static void write_descriptors(struct prom *prom)
{
    struct rlimit limit = {0};
    int64_t count = 0;
    DIR *dir = opendir("/proc/self/fd");

    if (dir) {
        for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
            count += entry->d_name[0] != '.';
        closedir(dir);
        // The directory's own descriptor was there only while it was read.
        prom_one_int(prom, "process_open_fds", "Open file descriptors.", count - 1);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        prom_one_int(prom, "process_max_fds", "Most file descriptors that may be open.",
                     limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur);
}

void metrics_write_process(struct prom *prom, int64_t started_wall_ns)
{
    write_cpu(prom);
    write_memory(prom);
    write_descriptors(prom);
    prom_one_seconds(prom, "process_start_time_seconds", "Start of the process, as Unix time.",
                     started_wall_ns);
}
