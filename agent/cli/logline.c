// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/logline.h"

#include <string.h>

static const char stamp_form[] = "0000-00-00T00:00:00.000000Z"; // 0: a digit

static void skip(struct logline_text *text, size_t len)
{
    text->data += len;
    text->len -= len;
}

// Bytes of the value at the start of `text`; 0: there is none, or its quotes have no end.
static size_t value_len(const struct logline_text *text)
{
    size_t at = 1;

    if (text->len == 0)
        return 0;
    if (text->data[0] != '"') {
        const char *space = memchr(text->data, ' ', text->len);

        return space ? (size_t)(space - text->data) : text->len;
    }
    while (at < text->len && text->data[at] != '"')
        at += text->data[at] == '\\' ? 2 : 1;
    return at < text->len ? at + 1 : 0;
}

// Takes "key=value" and the space behind it off the start of `rest`.
static bool take_pair(struct logline_text *rest, const char *key,
                      struct logline_text *ret_value)
{
    size_t key_len = strlen(key);
    size_t len = 0;

    if (rest->len <= key_len || memcmp(rest->data, key, key_len) != 0 ||
        rest->data[key_len] != '=')
        return false;
    skip(rest, key_len + 1);
    len = value_len(rest);
    if (len == 0 || (len < rest->len && rest->data[len] != ' '))
        return false;
    *ret_value = (struct logline_text){rest->data, len};
    skip(rest, len < rest->len ? len + 1 : len);
    return true;
}

static bool is_stamp(const struct logline_text *text)
{
    if (text->len != sizeof(stamp_form) - 1)
        return false;
    for (size_t i = 0; i < text->len; i++) {
        bool is_digit = text->data[i] >= '0' && text->data[i] <= '9';

        if (stamp_form[i] == '0' ? !is_digit : text->data[i] != stamp_form[i])
            return false;
    }
    return true;
}

static bool take_level(const struct logline_text *text, enum logline_level *ret)
{
    static const char *const names[] = {[LOGLINE_DEBUG] = "debug",
                                        [LOGLINE_INFO] = "info",
                                        [LOGLINE_WARN] = "warn",
                                        [LOGLINE_ERROR] = "error"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (text->len != strlen(names[i]) || memcmp(text->data, names[i], text->len) != 0)
            continue;
        *ret = (enum logline_level)i;
        return true;
    }
    return false;
}

// Where "ts=" begins: at the start, or behind what the reader of the log has put before it.
static size_t find_start(const char *line, size_t len)
{
    static const char key[] = " ts=";

    if (len < sizeof(key) || memcmp(line, key + 1, sizeof(key) - 2) == 0)
        return 0;
    for (size_t i = 0; i + sizeof(key) - 1 <= len; i++) {
        if (memcmp(line + i, key, sizeof(key) - 1) == 0)
            return i + 1;
    }
    return 0;
}

// Ours escape them; what has one comes from elsewhere.
static bool has_control_byte(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            return true;
    }
    return false;
}

bool logline_parse(const char *line, size_t len, struct logline *ret)
{
    size_t start = find_start(line, len);
    struct logline_text rest = {line + start, len - start};
    struct logline found = {.prefix = {line, start}};
    struct logline_text boot = {0};
    struct logline_text level = {0};

    if (has_control_byte(line, len) || !take_pair(&rest, "ts", &found.time) ||
        !is_stamp(&found.time) || !take_pair(&rest, "boot_ns", &boot) ||
        !take_pair(&rest, "level", &level) || !take_level(&level, &found.level) ||
        !take_pair(&rest, "msg", &found.message))
        return false;
    found.pairs = rest;
    *ret = found;
    return true;
}

void logline_put_message(const struct logline_text *message, struct buf *out)
{
    struct logline_text inner = *message;

    if (inner.len < 2 || inner.data[0] != '"') {
        buf_append(out, inner.data, inner.len);
        return;
    }
    inner = (struct logline_text){inner.data + 1, inner.len - 2};
    for (size_t i = 0; i < inner.len; i++) {
        bool is_escape = inner.data[i] == '\\' && i + 1 < inner.len &&
                         (inner.data[i + 1] == '"' || inner.data[i + 1] == '\\');

        buf_putc(out, inner.data[is_escape ? ++i : i]);
    }
}
