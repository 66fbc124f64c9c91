// SPDX-License-Identifier: Apache-2.0
#include "agent/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

const char *database_state_name(enum database_state state)
{
    switch (state) {
    case DATABASE_UNKNOWN: return "unknown";
    case DATABASE_ANSWERS: return "answers";
    case DATABASE_SILENT: return "silent";
    case DATABASE_REFUSES: return "refuses";
    case DATABASE_STANDBY: return "standby";
    }
    return "unknown";
}

const char *history_wall(struct timespec wall, char *buf, size_t size)
{
    struct tm tm = {0};
    char seconds[32];

    (void)gmtime_r(&wall.tv_sec, &tm);
    (void)strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(buf, size, "%s.%03ldZ", seconds, wall.tv_nsec / 1000000);
    return buf;
}

static void take_facts(struct history_entry *entry, const struct facts *facts,
                       const struct core_memory *memory)
{
    const struct election_fact *election = &facts->election;

    entry->at = facts->now;
    (void)clock_gettime(CLOCK_REALTIME, &entry->wall); // can't fail
    entry->rule = memory->last_rule;
    entry->incarnation = memory->incarnation;
    entry->row_known = election->known;
    memcpy(entry->row_id, election->owner_id, sizeof(entry->row_id) - 1); // the rest is zero
    entry->row_age_ns = election->age_ns + instant_since(facts->now, election->sent_at);
    entry->has_deadline = memory->deadline.ns != 0;
    entry->deadline_left_ns = instant_since(memory->deadline, facts->now);
    entry->term_known = election->term_known;
    entry->term = election->term;
    entry->database = facts->database.state;
}

void history_add(struct history *history, const struct facts *facts,
                 const struct core_memory *memory, const char *event, const char *detail)
{
    struct history_entry *entry = &history->ring[history->count % HISTORY_SIZE];

    history->count++;
    *entry = (struct history_entry){.event = event};
    (void)snprintf(entry->detail, sizeof(entry->detail), "%s", detail);
    take_facts(entry, facts, memory);
}

static void put_entry(const struct history_entry *entry, struct buf *out)
{
    char wall[48];

    buf_printf(out, "{\"boot_ns\":%" PRId64 ",\"ts\":\"%s\",\"event\":\"%s\",\"rule\":\"%s\"",
               entry->at.ns, history_wall(entry->wall, wall, sizeof(wall)), entry->event,
               rule_name(entry->rule));
    buf_printf(out, ",\"incarnation\":%" PRIu64 ",\"database\":\"%s\"", entry->incarnation,
               database_state_name(entry->database));
    if (entry->row_known) {
        buf_puts(out, ",\"row_id\":");
        buf_put_json(out, entry->row_id);
        buf_printf(out, ",\"row_age_ms\":%" PRId64, entry->row_age_ns / NS_PER_MS);
    }
    if (entry->term_known)
        buf_printf(out, ",\"term\":%" PRIu64, entry->term);
    if (entry->has_deadline)
        buf_printf(out, ",\"deadline_ms_left\":%" PRId64, entry->deadline_left_ns / NS_PER_MS);
    buf_puts(out, ",\"detail\":");
    buf_put_json(out, entry->detail);
    buf_putc(out, '}');
}

void history_json(const struct history *history, struct buf *out)
{
    uint64_t kept = history->count < HISTORY_SIZE ? history->count : HISTORY_SIZE;

    buf_putc(out, '[');
    for (uint64_t i = history->count - kept; i < history->count; i++) {
        if (i > history->count - kept)
            buf_putc(out, ',');
        put_entry(&history->ring[i % HISTORY_SIZE], out);
    }
    buf_putc(out, ']');
}
