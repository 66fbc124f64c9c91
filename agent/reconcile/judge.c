// SPDX-License-Identifier: Apache-2.0
// Who has a row's address today. A pod fits when owner, component and port agree; one that fits
// in part is not the row's worker, but may keep the row from being called dead.
#include <string.h>

#include "agent/reconcile/internal.h"

enum fit {
    FIT_NONE = 0,
    FIT_PART, // with a reason
    FIT_WHOLE,
};

static bool is_worker_owner(enum pod_owner owner)
{
    return owner != POD_OWNER_NONE && owner != POD_OWNER_OTHER;
}

static bool declares(const struct worker_pod *pod, int32_t port)
{
    for (unsigned i = 0; i < pod->port_count; i++) {
        if (pod->ports[i] == port)
            return true;
    }
    return false;
}

// One positive sign at least, and none against it: an address alone is no worker.
static bool fits(const struct worker_pod *pod, const struct worker_row *row)
{
    bool has_type = (pod->types >> row->type) & 1;
    bool has_port = declares(pod, row->port);

    if (!is_worker_owner(pod->owner) || pod->is_foreign)
        return false;
    if (pod->host_network && !has_port)
        return false;
    return (has_type && (has_port || pod->port_count == 0)) || (has_port && pod->types == 0);
}

static enum worker_reason part_reason(const struct worker_pod *pod)
{
    return is_worker_owner(pod->owner) && !pod->is_foreign ? REASON_PORT_MISMATCH
                                                           : REASON_STRANGER;
}

static enum fit fit_by_name(const struct worker_pod *pod, const struct worker_row *row,
                            enum address_match match, enum worker_reason *ret_reason)
{
    if (match == ADDRESS_NO)
        return FIT_NONE;
    if (match == ADDRESS_YES && fits(pod, row))
        return FIT_WHOLE;
    *ret_reason = match == ADDRESS_MAYBE ? REASON_NAME_MISMATCH : part_reason(pod);
    return FIT_PART;
}

// Addresses are handed on: who has one now is somebody else unless something says otherwise.
static enum fit fit_by_ip(const struct worker_pod *pod, const struct worker_row *row,
                          enum worker_reason *ret_reason)
{
    bool has_port = declares(pod, row->port);

    if (fits(pod, row))
        return FIT_WHOLE;
    if (pod->is_foreign)
        return FIT_NONE;
    *ret_reason = part_reason(pod);
    if (has_port)
        return FIT_PART;
    if (pod->owner == POD_OWNER_OTHER)
        return FIT_NONE;
    if (pod->owner == POD_OWNER_NONE)
        return pod->port_count == 0 ? FIT_PART : FIT_NONE;
    if (pod->host_network && pod->port_count > 0)
        return FIT_NONE;
    return pod->types == 0 || ((pod->types >> row->type) & 1) ? FIT_PART : FIT_NONE;
}

static bool is_ended(const struct pass *pass, int32_t index)
{
    int32_t slot = pass->space.pod_memory[index];

    return memory_is_ended(&pass->snapshot->pods[index],
                           slot < 0 ? NULL : &pass->memory->pods[slot]);
}

// Among several: one that runs, before one that is on its way out.
static bool is_better(const struct worker_pod *pod, const struct worker_pod *than)
{
    if (pod->is_deleting != than->is_deleting)
        return than->is_deleting;
    return pod->is_running && !than->is_running;
}

static void add(const struct pass *pass, struct holder *holder, int32_t index, enum fit fit,
                enum worker_reason reason)
{
    const struct worker_pod *pods = pass->snapshot->pods;

    if (fit == FIT_PART && holder->other < 0) {
        holder->other = index;
        holder->other_reason = reason;
    }
    if (fit != FIT_WHOLE || index == holder->pod)
        return;
    holder->count++;
    if (holder->pod < 0 || is_better(&pods[index], &pods[holder->pod]))
        holder->pod = index;
}

static bool has_ip(const struct worker_pod *pod, const uint8_t *ip)
{
    for (unsigned i = 0; i < pod->ip_count; i++) {
        struct address address = address_parse(pod->ips[i]);

        if (address.kind == ADDRESS_IP && memcmp(address.ip, ip, sizeof(address.ip)) == 0)
            return true;
    }
    return false;
}

static void find_by_ip(const struct pass *pass, const struct worker_row *row, int32_t port,
                       const struct address *address, struct holder *holder)
{
    struct cursor cursor = index_seek(&pass->space.pods, key_ip(address->ip, port));
    int32_t index = -1;

    while ((index = index_next(&pass->space.pods, &cursor)) >= 0) {
        const struct worker_pod *pod = &pass->snapshot->pods[index];
        enum worker_reason reason = REASON_STRANGER;
        enum fit fit = FIT_NONE;

        if (is_ended(pass, index) || !has_ip(pod, address->ip))
            continue;
        fit = fit_by_ip(pod, row, &reason);
        add(pass, holder, index, fit, reason);
    }
}

static void try_name(const struct pass *pass, const struct worker_row *row,
                     const struct address *address, int32_t index, struct holder *holder)
{
    const struct worker_pod *pod = &pass->snapshot->pods[index];
    struct address_pod names = {.host = pod->hostname ? pod->hostname : pod->name,
                                .subdomain = pod->subdomain,
                                .name_space = pod->name_space};
    enum address_match match = ADDRESS_NO;
    enum worker_reason reason = REASON_STRANGER;
    enum fit fit = FIT_NONE;

    if (is_ended(pass, index))
        return;
    match = address_names(address, &names);
    // Found by its name, but it calls itself otherwise.
    if (match == ADDRESS_NO && pod->hostname) {
        names.host = pod->name;
        match = address_names(address, &names) == ADDRESS_NO ? ADDRESS_NO : ADDRESS_MAYBE;
    }
    fit = fit_by_name(pod, row, match, &reason);
    add(pass, holder, index, fit, reason);
}

// A pod's name may hold dots: each beginning of the row's name up to one is looked for.
static void find_by_name(const struct pass *pass, const struct worker_row *row,
                         const struct address *address, struct holder *holder)
{
    uint64_t sum = key_begin(KEY_POD_NAME);
    size_t from = 0;

    while (from < address->name_len) {
        size_t len = strcspn(address->name + from, ".");
        struct cursor cursor;
        int32_t index = -1;

        // The dot before the label, except for the first, belongs to the name.
        sum = key_text(sum, address->name + from - (from > 0), len + (from > 0));
        cursor = index_seek(&pass->space.pods, key_end(sum));
        while ((index = index_next(&pass->space.pods, &cursor)) >= 0)
            try_name(pass, row, address, index, holder);
        from += len + 1;
    }
}

struct holder judge_holder(const struct pass *pass, const struct worker_row *row,
                           const struct address *address)
{
    struct holder holder = {.pod = -1, .other = -1};

    if (address->kind == ADDRESS_IP) {
        find_by_ip(pass, row, 0, address, &holder);
        if (row->port != 0)
            find_by_ip(pass, row, row->port, address, &holder);
    } else {
        find_by_name(pass, row, address, &holder);
    }
    return holder;
}

enum worker_verdict judge_held(const struct worker_pod *pod, enum worker_reason *ret_reason)
{
    if (pod->is_unreachable) {
        *ret_reason = REASON_NODE_UNREACHABLE;
        return VERDICT_UNKNOWN;
    }
    if (pod->is_terminal) {
        *ret_reason = REASON_ENDED_RUNNING;
        return VERDICT_UNKNOWN;
    }
    *ret_reason = pod->is_deleting   ? REASON_POD_TERMINATING
                  : pod->has_started ? REASON_POD_RUNS
                                     : REASON_POD_PENDING;
    return VERDICT_LIVE;
}
