// SPDX-License-Identifier: Apache-2.0
#include "agent/trim.h"

#include <link.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

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

static int trim_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    (void)size;
    (void)arg;
    if (has_text_relocations(info))
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
        uintptr_t end = begin + segment->p_filesz;

        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W))
            continue;
        begin = (begin + page - 1) & ~(page - 1);
        end &= ~(page - 1);
        if (end > begin) // advice: without effect where it can't be followed (the vDSO)
            (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
    return 0;
}

void trim_code_pages(void)
{
    (void)dl_iterate_phdr(trim_object, NULL);
    (void)malloc_trim(0); // whether anything was given back does not matter
}
