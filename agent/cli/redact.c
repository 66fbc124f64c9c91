// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/redact.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

// Where a secret ends that no quotes end.
#define SECRET_END " \t\r\n\"'\\&;,"

static void keep(struct redact *redact, const char *secret, size_t len)
{
    struct buf *kept = &redact->secrets[redact->count];

    if (redact->count == 2 * REDACT_COUNT)
        return;
    buf_append(kept, secret, len);
    redact->count++;
}

void redact_add(struct redact *redact, const char *secret)
{
    struct buf json = {0};
    size_t len = secret ? strlen(secret) : 0;

    if (len < REDACT_MIN)
        return;
    keep(redact, secret, len);
    buf_put_json(&json, secret);
    if (json.len != len + 2)
        keep(redact, json.data + 1, json.len - 2);
    buf_done(&json);
}

void redact_done(struct redact *redact)
{
    for (size_t i = 0; i < redact->count; i++)
        buf_done(&redact->secrets[i]);
    redact->count = 0;
}

// Bytes of a known secret at the start of `text`, the longest one; 0: none.
static size_t known_at(const struct redact *redact, const char *text, size_t left)
{
    size_t found = 0;

    for (size_t i = 0; i < redact->count; i++) {
        const struct buf *secret = &redact->secrets[i];

        if (secret->len <= left && secret->len > found &&
            memcmp(text, secret->data, secret->len) == 0)
            found = secret->len;
    }
    return found;
}

// "://user:secret@": bytes up to the secret, and in *ret_len its own; 0: there is none.
static size_t url_at(const char *text, size_t *ret_len)
{
    size_t user = 0;
    size_t secret = 0;

    if (strncmp(text, "://", 3) != 0)
        return 0;
    user = 3 + strcspn(text + 3, ":/@" SECRET_END);
    if (text[user] != ':')
        return 0;
    secret = strcspn(text + user + 1, "/@" SECRET_END);
    if (secret == 0 || text[user + 1 + secret] != '@')
        return 0;
    *ret_len = secret;
    return user + 1;
}

// The same for a word that stands before a secret.
static size_t word_at(const char *text, size_t *ret_len)
{
    static const char *const words[] = {"password=", "passwd=", "Bearer "};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t len = strlen(words[i]);
        bool is_quoted = false;

        if (strncasecmp(text, words[i], len) != 0)
            continue;
        is_quoted = text[len] == '\'';
        *ret_len = is_quoted ? strcspn(text + len + 1, "'\n") : strcspn(text + len, SECRET_END);
        return *ret_len > 0 ? len + (is_quoted ? 1 : 0) : 0;
    }
    return 0;
}

// Bytes that are left out; none: end is not behind `from`.
struct range {
    size_t from;
    size_t end;
};

// What a pattern at `at` says is a secret, joined to what is left out already: it may lie
// before that, and a part that is shown may hold one that is known.
static void look_for_pattern(const char *text, size_t at, struct range *out)
{
    size_t secret = 0;
    size_t before = url_at(text + at, &secret);

    if (secret == 0)
        before = word_at(text + at, &secret);
    if (secret == 0)
        return;
    if (out->end <= at) {
        *out = (struct range){at + before, at + before + secret};
        return;
    }
    out->from = at + before < out->from ? at + before : out->from;
    out->end = at + before + secret > out->end ? at + before + secret : out->end;
}

void redact_text(const struct redact *redact, struct buf *text)
{
    const char *from = buf_str(text);
    struct range out = {0};
    struct buf to = {0};
    size_t at = 0;

    while (at < text->len) {
        size_t known = known_at(redact, from + at, text->len - at);

        if (known > 0)
            out = (struct range){at, at + known > out.end ? at + known : out.end};
        else
            look_for_pattern(from, at, &out);
        if (out.end <= at || out.from != at) {
            buf_putc(&to, from[at++]);
            continue;
        }
        buf_puts(&to, REDACT_MARK);
        at = out.end;
    }
    buf_done(text);
    *text = to;
}
