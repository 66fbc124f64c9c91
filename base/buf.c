// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_CAP 64

void buf_done(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

char *buf_reserve(struct buf *buf, size_t more)
{
    size_t need = 0;
    size_t cap = buf->cap ? buf->cap : MIN_CAP;
    char *data = NULL;

    if (__builtin_add_overflow(buf->len, more, &need) || __builtin_add_overflow(need, 1, &need))
        abort();
    if (need > buf->cap) {
        while (cap < need)
            if (__builtin_mul_overflow(cap, 2, &cap))
                cap = need;
        data = realloc(buf->data, cap);
        if (!data)
            abort();
        buf->data = data;
        buf->cap = cap;
    }
    return buf->data + buf->len;
}

void buf_added(struct buf *buf, size_t len)
{
    assert(buf->len + len < buf->cap);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void buf_append(struct buf *buf, const void *data, size_t len)
{
    char *to = buf_reserve(buf, len);

    if (len)
        memcpy(to, data, len);
    buf_added(buf, len);
}

void buf_puts(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_putc(struct buf *buf, char c)
{
    buf_append(buf, &c, 1);
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;
    va_list again;
    int len = 0;
    char *to = NULL;

    va_start(args, fmt);
    va_copy(again, args);
    len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0)
        abort(); // a broken format of our own
    to = buf_reserve(buf, (size_t)len);
    (void)vsnprintf(to, (size_t)len + 1, fmt, again);
    va_end(again);
    buf_added(buf, (size_t)len);
}

void buf_put_json(struct buf *buf, const char *text)
{
    buf_putc(buf, '"');
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        switch (c) {
        case '"': buf_puts(buf, "\\\""); break;
        case '\\': buf_puts(buf, "\\\\"); break;
        case '\n': buf_puts(buf, "\\n"); break;
        case '\r': buf_puts(buf, "\\r"); break;
        case '\t': buf_puts(buf, "\\t"); break;
        default:
            if (c < 0x20 || c == 0x7f)
                buf_printf(buf, "\\u%04x", c);
            else
                buf_putc(buf, (char)c);
        }
    }
    buf_putc(buf, '"');
}

void buf_consume(struct buf *buf, size_t len)
{
    if (len >= buf->len) {
        buf_clear(buf);
        return;
    }
    memmove(buf->data, buf->data + len, buf->len - len + 1);
    buf->len -= len;
}
