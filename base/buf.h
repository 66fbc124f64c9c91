// SPDX-License-Identifier: Apache-2.0
#pragma once
// buf: a growable byte buffer that is always followed by a NUL byte, so that text in it can be
// used as a string. A zeroed struct is an empty buffer. Out of memory aborts the process: the
// agent's death is safe, a half-built answer is not.

#include <stddef.h>

struct buf {
    char *data; // NULL until the first byte; data[len] is NUL
    size_t len;
    size_t cap;
};

// Frees what the buffer holds and makes it empty again. Accepts a zeroed buffer.
void buf_done(struct buf *buf);

// Empties the buffer but keeps its memory.
static inline void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

// The content as a string, "" while empty. Borrowed: valid until the next change of the buffer.
static inline const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

// Makes room for `more` bytes behind the content (and the NUL) and returns where they go; the
// caller writes there and then calls buf_added.
char *buf_reserve(struct buf *buf, size_t more);
void buf_added(struct buf *buf, size_t len);

void buf_append(struct buf *buf, const void *data, size_t len);
void buf_puts(struct buf *buf, const char *text);
void buf_putc(struct buf *buf, char c);
void buf_printf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Appends `text` as a JSON string with its quotes; bytes below 0x20 and 0x7f are escaped,
// a byte that is no UTF-8 (a text that was cut, a row of a database without encoding) becomes
// U+FFFD.
void buf_put_json(struct buf *buf, const char *text);

// Drops the first `len` bytes, at most all.
void buf_consume(struct buf *buf, size_t len);
