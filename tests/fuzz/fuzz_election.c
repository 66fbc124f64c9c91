// SPDX-License-Identifier: Apache-2.0
// The answer of Postgres: fields of any content, NULL or missing. The input is cut at zero
// bytes into fields; a field that is the single byte 1 is SQL NULL.
#include "agent/pg/election.h"
#include "base/buf.h"
#include "tests/fuzz/fuzz.h"

#define FIELDS_MAX 24

static size_t cut_fields(char *text, size_t size, const char **fields)
{
    size_t count = 0;
    size_t start = 0;

    for (size_t i = 0; i <= size && count < FIELDS_MAX; i++) {
        if (i < size && text[i] != '\0')
            continue;
        fields[count++] = strcmp(text + start, "\x01") == 0 ? NULL : text + start;
        start = i + 1;
    }
    return count;
}

static void parse_read(const char *const *fields, size_t count)
{
    struct election_read read = {0};
    struct err err = {0};

    if (election_parse(fields, count, &read, &err) < 0) {
        fuzz_check_refusal(&err);
        assert(!read.row_present && read.term == 0 && read.system_id == 0);
        return;
    }
    assert(read.status == ELECTION_OK || read.status == ELECTION_STANDBY);
    assert(memchr(read.id, '\0', sizeof(read.id)));
    assert(memchr(read.owner_tag, '\0', sizeof(read.owner_tag)));
    assert(memchr(read.heartbeat_tag, '\0', sizeof(read.heartbeat_tag)));
    assert(memchr(read.term_owner_id, '\0', sizeof(read.term_owner_id)));
}

static void parse_probe(const char *const *fields, size_t count)
{
    struct election_caps caps = {0};
    struct err err = {0};

    if (election_parse_probe(fields, count, &caps, &err) < 0)
        fuzz_check_refusal(&err);
}

// What an operator calls the table ends up in a statement: quoted, or refused.
static void quote_table(const char *name)
{
    char quoted[2 * ELECTION_TABLE_SIZE + 8];
    struct err err = {0};

    if (!name)
        return;
    if (election_table_quote(name, quoted, sizeof(quoted), &err) < 0)
        fuzz_check_refusal(&err);
    else
        assert(!strpbrk(quoted, "';\\ ") && quoted[0] == '"');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[4096];
    const char *fields[FIELDS_MAX];
    size_t count = 0;
    int64_t number = 0;

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    count = cut_fields(text, size, fields);
    parse_read(fields, count);
    parse_probe(fields, count);
    quote_table(fields[0]);
    if (election_parse_count(fields[0], &number))
        assert(number >= 0);
    return 0;
}
