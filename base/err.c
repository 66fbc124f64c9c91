// SPDX-License-Identifier: Apache-2.0
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, enum err_kind kind, int code, const char *fmt, ...)
{
    va_list args;

    if (!err)
        return -1;
    err->kind = kind;
    err->code = code;
    va_start(args, fmt);
    // Truncation is the contract, and the format comes from our own sources.
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, args);
    va_end(args);
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char inner[sizeof(err->msg)];
    va_list args;
    size_t used = 0;

    if (!err)
        return -1;
    memcpy(inner, err->msg, sizeof(inner));
    va_start(args, fmt);
    (void)vsnprintf(err->msg, sizeof(err->msg), fmt, args);
    va_end(args);
    used = strnlen(err->msg, sizeof(err->msg) - 1);
    (void)snprintf(err->msg + used, sizeof(err->msg) - used, ": %s", inner);
    return -1;
}
