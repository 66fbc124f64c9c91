// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/fault.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum pg_fault_kind pg_fault_kind_of(const char *sqlstate)
{
    static const struct {
        const char *prefix;
        enum pg_fault_kind kind;
    } table[] = {
        {"28", PG_REFUSAL},    {"42501", PG_REFUSAL}, {"3D000", PG_REFUSAL},
        {"53300", PG_REFUSAL}, {"08", PG_SILENT},     {"57P", PG_SILENT},
        {"42P01", PG_MISSING}, {"42703", PG_MISSING}, {"42883", PG_MISSING},
        {"42804", PG_MISSING}, {"3F000", PG_MISSING}, {"42846", PG_MISSING},
        {"22", PG_MISSING}, // a value that the column's type should not allow
    };
    if (!sqlstate || !sqlstate[0])
        return PG_SILENT;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].kind;
    }
    return PG_FAILED;
}

static enum err_kind err_kind_of(enum pg_fault_kind kind)
{
    switch (kind) {
    case PG_REFUSAL: return ERR_DENIED;
    case PG_MISSING: return ERR_INVALID;
    case PG_OK:
    case PG_SILENT:
    case PG_FAILED: break;
    }
    return ERR_TRANSIENT;
}

// Copies one line's worth of `text`; line ends and other control characters become single
// blanks.
static void copy_clean(char *out, size_t size, const char *text)
{
    size_t len = 0;
    for (; *text && len + 1 < size; text++) {
        bool is_blank = (unsigned char)*text <= ' ' || *text == 0x7f;
        if (is_blank && (len == 0 || out[len - 1] == ' '))
            continue;
        out[len++] = is_blank ? ' ' : *text;
    }
    while (len > 0 && out[len - 1] == ' ')
        len--;
    out[len] = '\0';
}

static void blot_out(char *text, const char *secret)
{
    size_t len = secret ? strlen(secret) : 0;
    if (len == 0)
        return;
    for (char *at = strstr(text, secret); at; at = strstr(at + len, secret))
        memset(at, '*', len);
}

void pg_fault_set(struct pg_fault *fault, const char *sqlstate, const char *text,
                  const char *secret)
{
    char clean[sizeof fault->err.msg];

    *fault = (struct pg_fault){.kind = pg_fault_kind_of(sqlstate)};
    if (sqlstate)
        (void)snprintf(fault->sqlstate, sizeof fault->sqlstate, "%s", sqlstate);
    copy_clean(clean, sizeof clean, text && text[0] ? text : "connection lost");
    blot_out(clean, secret);
    (void)err_set(&fault->err, err_kind_of(fault->kind), 0, "%s%s%s", clean,
                  fault->sqlstate[0] ? ", SQLSTATE " : "", fault->sqlstate);
}

void pg_fault_silent(struct pg_fault *fault, enum err_kind kind, const char *fmt, ...)
{
    char text[sizeof fault->err.msg];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    *fault = (struct pg_fault){.kind = PG_SILENT};
    (void)err_set(&fault->err, kind, 0, "%s", text);
}

// "XXXXX: " with X of [0-9A-Z], as PQERRORS_VERBOSE puts it behind the severity and two blanks.
static bool is_sqlstate_at(const char *text)
{
    for (size_t i = 0; i < 5; i++) {
        bool is_digit = text[i] >= '0' && text[i] <= '9';
        bool is_upper = text[i] >= 'A' && text[i] <= 'Z';
        if (!is_digit && !is_upper)
            return false;
    }
    return text[5] == ':' && text[6] == ' ';
}

void pg_fault_from_connect(struct pg_fault *fault, const char *message, const char *secret)
{
    char text[512];
    char sqlstate[6] = "";

    // libpq appends LOCATION, DETAIL and HINT on lines of their own: the first line says it.
    size_t len = strcspn(message, "\n");
    (void)snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1),
                   message);
    for (char *at = strstr(text, ":  "); at; at = strstr(at + 1, ":  ")) {
        if (!is_sqlstate_at(at + 3))
            continue;
        memcpy(sqlstate, at + 3, 5);
        memmove(at + 2, at + 10, strlen(at + 10) + 1);
        break;
    }
    pg_fault_set(fault, sqlstate, text, secret);
}
