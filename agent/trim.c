// SPDX-License-Identifier: Apache-2.0
#include "agent/trim.h"

#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGES_MAX 8 // an object has three or four

// Text relocations make private, changed pages of read-only segments: dropping those would lose
// the change.
static bool has_text_relocations(const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Dyn) *dyn = NULL;

        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        dyn = (const ElfW(Dyn) *)(uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; dyn->d_tag != DT_NULL; dyn++)
            if (dyn->d_tag == DT_TEXTREL ||
                (dyn->d_tag == DT_FLAGS && (dyn->d_un.d_val & DF_TEXTREL)))
                return true;
    }
    return false;
}

struct range {
    uintptr_t begin;
    uintptr_t end;
};

// The whole pages of the object's read-only segments. Returns how many ranges.
static size_t find_ranges(const struct dl_phdr_info *info, struct range ranges[RANGES_MAX])
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    size_t count = 0;

    for (size_t i = 0; i < info->dlpi_phnum && count < RANGES_MAX; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        struct range range = {(begin + page - 1) & ~(page - 1),
                              (begin + segment->p_filesz) & ~(page - 1)};

        if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_W) && range.begin < range.end)
            ranges[count++] = range;
    }
    return count;
}

// The list of segments lies in the first of them: once that is given back, a look at the list
// would map it again, and what is around it.
static int trim_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct range ranges[RANGES_MAX];
    size_t count = has_text_relocations(info) ? 0 : find_ranges(info, ranges);

    (void)size;
    (void)arg;
    for (size_t i = 0; i < count; i++) // advice: without effect where it can't be followed
        (void)madvise((void *)ranges[i].begin, ranges[i].end - ranges[i].begin, MADV_DONTNEED);
    return 0;
}

void trim_code_pages(void)
{
    (void)dl_iterate_phdr(trim_object, NULL);
    (void)malloc_trim(0); // whether anything was given back does not matter
}
