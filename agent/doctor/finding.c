// SPDX-License-Identifier: Apache-2.0
#include "agent/doctor/doctor.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 4, 0))) static void add(struct doctor *doctor,
                                                      const struct doctor_finding *head,
                                                      const char *fix, const char *fmt,
                                                      va_list args)
{
    struct doctor_finding *finding = &doctor->list[doctor->count];

    assert(doctor->count < DOCTOR_FINDINGS_MAX); // the checks are ours, and bounded
    doctor->count++;
    *finding = *head;
    (void)vsnprintf(finding->text, sizeof(finding->text), fmt, args);
    (void)snprintf(finding->fix, sizeof(finding->fix), "%s", fix);
}

void doctor_ok(struct doctor *doctor, const char *check, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, &(struct doctor_finding){.level = DOCTOR_OK, .check = check}, "", fmt, args);
    va_end(args);
}

void doctor_skip(struct doctor *doctor, const char *check, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, &(struct doctor_finding){.level = DOCTOR_SKIP, .check = check}, "", fmt, args);
    va_end(args);
}

void doctor_warn(struct doctor *doctor, const char *check, const char *fix, const char *fmt,
                 ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, &(struct doctor_finding){.level = DOCTOR_WARN, .check = check}, fix, fmt, args);
    va_end(args);
}

void doctor_bad(struct doctor *doctor, const char *check, const char *fix, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    add(doctor, &(struct doctor_finding){.level = DOCTOR_BAD, .check = check}, fix, fmt, args);
    va_end(args);
}

const char *doctor_level_name(enum doctor_level level)
{
    switch (level) {
    case DOCTOR_OK: return "ok";
    case DOCTOR_WARN: return "warning";
    case DOCTOR_BAD: return "failed";
    case DOCTOR_SKIP: return "skipped";
    }
    return "";
}

size_t doctor_count(const struct doctor *doctor, enum doctor_level level)
{
    size_t count = 0;

    for (size_t i = 0; i < doctor->count; i++)
        count += doctor->list[i].level == level;
    return count;
}
