// SPDX-License-Identifier: Apache-2.0
#include "agent/reclaim/drops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME  UINT64_C(0x100000001b3)

static uint64_t mix(uint64_t hash, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * FNV_PRIME;
    return hash;
}

void drops_clear(struct drops *drops)
{
    free(drops->fragments);
    *drops = (struct drops){.revision = FNV_OFFSET};
}

static void show(struct drops_shown *shown, size_t *count, const struct recovery_row *row)
{
    struct drops_shown *at = &shown[*count];

    if (*count == DROPS_SHOWN_MAX)
        return;
    (*count)++;
    *at = (struct drops_shown){.id = row->id, .job_id = row->job_id, .age_ms = row->age_ms};
    (void)snprintf(at->name, sizeof(at->name), "%s", row->name ? row->name : "");
    (void)snprintf(at->tables, sizeof(at->tables), "%s", row->tables ? row->tables : "");
}

static void add_dropped(struct drops *drops, const struct recovery_row *row)
{
    show(drops->dropped_shown, &drops->dropped_shown_count, row);
    drops->revision = mix(drops->revision, &row->id, sizeof(row->id));
    if (row->tables)
        drops->revision = mix(drops->revision, row->tables, strlen(row->tables));
    if (drops->fragment_count == drops->room) {
        drops->room = drops->room ? 2 * drops->room : 16;
        drops->fragments = reallocarray(drops->fragments, drops->room, sizeof(uint32_t));
        if (!drops->fragments)
            abort();
    }
    drops->fragments[drops->fragment_count++] = (uint32_t)row->id;
}

void drops_add(struct drops *drops, const struct recovery_row *row)
{
    switch (row->kind) {
    case RECOVERY_WORKER: break;
    case RECOVERY_DROPPED: add_dropped(drops, row); break;
    case RECOVERY_CREATING:
        drops->creating++;
        show(drops->creating_shown, &drops->creating_shown_count, row);
        break;
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

void drops_close(struct drops *drops)
{
    size_t kept = 0;

    if (drops->fragment_count > 1)
        qsort(drops->fragments, drops->fragment_count, sizeof(uint32_t), compare);
    for (size_t i = 0; i < drops->fragment_count; i++)
        if (i == 0 || drops->fragments[i] != drops->fragments[kept - 1])
            drops->fragments[kept++] = drops->fragments[i];
    drops->fragment_count = kept;
}

struct order_drops drops_facts(const struct drops *drops, const struct recovery_state *state)
{
    if (!drops)
        return (struct order_drops){0};
    return (struct order_drops){
        .known = true,
        .is_complete = state->dropped < DROPS_COMPLETE,
        .may_build = state->may_build || drops->creating > 0 || !state->is_catalog_known,
        .fragments = (uint32_t)drops->fragment_count,
        .creating = drops->creating,
        .revision = drops->revision,
    };
}
