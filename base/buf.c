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

// Bytes of the UTF-8 character at `text` that is no ASCII; 0: it is none (also an overlong one,
// a surrogate, one beyond U+10FFFF). The NUL byte at the end of the text ends a character, too.
static size_t utf8_length(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t len = 2;

    if (c[0] < 0xc2 || c[0] > 0xf4)
        return 0;
    if (c[0] >= 0xe0)
        len = c[0] < 0xf0 ? 3 : 4;
    for (size_t i = 1; i < len; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) ||
        (c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] > 0x8f))
        return 0;
    return len;
}

static void put_json_ascii(struct buf *buf, char c)
{
    switch (c) {
    case '"': buf_puts(buf, "\\\""); break;
    case '\\': buf_puts(buf, "\\\\"); break;
    case '\n': buf_puts(buf, "\\n"); break;
    case '\r': buf_puts(buf, "\\r"); break;
    case '\t': buf_puts(buf, "\\t"); break;
    default:
        if (c < 0x20 || c == 0x7f)
            buf_printf(buf, "\\u%04x", (unsigned)c);
        else
            buf_putc(buf, c);
    }
}

void buf_put_json(struct buf *buf, const char *text)
{
    size_t len = 0;

    buf_putc(buf, '"');
    for (; *text; text += len ? len : 1) {
        if ((unsigned char)*text < 0x80) {
            put_json_ascii(buf, *text);
            len = 1;
            continue;
        }
        len = utf8_length(text);
        if (len > 0)
            buf_append(buf, text, len);
        else
            buf_puts(buf, "\\ufffd");
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
