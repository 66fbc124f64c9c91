// SPDX-License-Identifier: Apache-2.0
#include "fence/proto.h"

#include <stddef.h>
#include <string.h>

#define CRC32_POLYNOMIAL UINT32_C(0xedb88320)

#define ORDER_FLAGS                                                                            \
    (FENCE_ORDER_ARMED | FENCE_ORDER_ENGAGED | FENCE_ORDER_SUPERSEDED |                        \
     FENCE_ORDER_MANUAL_HOLD | FENCE_ORDER_TWIN_HOLD | FENCE_ORDER_PHANTOM_HOLD |              \
     FENCE_ORDER_RESET_HOLD)
#define STATUS_FLAGS                                                                           \
    (SHIM_ENGAGED | SHIM_SUPERSEDED | SHIM_ARMED | SHIM_MANUAL | SHIM_AGENT_PRESENT |          \
     SHIM_TERM_RECEIVED | SHIM_MEMORY_LOCKED | SHIM_ALIVE | SHIM_SILENCE_HELD)
#define PORT_FLAGS                                                                             \
    (SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD)

// Bit by bit: a few hundred bytes a message, and no table to keep in memory.
static uint32_t crc32_of(uint32_t crc, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;

    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (CRC32_POLYNOMIAL & (0U - (crc & 1U)));
    }
    return ~crc;
}

// checksum and reserved are the last two fields of both messages; the checksum counts as zero.
static uint32_t checksum_of(const void *message, size_t checksum_offset, uint32_t reserved)
{
    static const uint32_t zero;
    uint32_t crc = crc32_of(0, message, checksum_offset);

    crc = crc32_of(crc, &zero, sizeof(zero));
    return crc32_of(crc, &reserved, sizeof(reserved));
}

void fence_order_seal(struct fence_order *order)
{
    order->magic = FENCE_ORDER_MAGIC;
    order->version = FENCE_PROTO_VERSION;
    order->size = sizeof(*order);
    order->checksum =
        checksum_of(order, offsetof(struct fence_order, checksum), order->reserved);
}

void fence_status_seal(struct fence_status *status)
{
    status->magic = FENCE_STATUS_MAGIC;
    status->version = FENCE_PROTO_VERSION;
    status->size = sizeof(*status);
    status->checksum =
        checksum_of(status, offsetof(struct fence_status, checksum), status->reserved);
}

struct envelope {
    const char *name;
    uint32_t magic;
    size_t size;
    size_t checksum_offset;
};

struct head {
    uint32_t magic;
    uint16_t version;
    uint16_t size;
};

static int check_envelope(const struct envelope *want, const void *bytes, size_t size,
                          struct err *err)
{
    struct head head = {0};
    uint32_t tail[2] = {0};
    uint32_t sum = 0;

    if (size < sizeof(head))
        return err_set(err, ERR_INVALID, 0, "%s: %zu bytes are no message", want->name, size);
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != want->magic)
        return err_set(err, ERR_INVALID, 0, "%s: magic is 0x%08x, not 0x%08x", want->name,
                       head.magic, want->magic);
    // Before the size: another version has another one.
    if (head.version != FENCE_PROTO_VERSION)
        return err_set(
            err, ERR_INVALID, 0,
            "%s: version %u, we speak %u: use agent and metafence-run of one release",
            want->name, head.version, FENCE_PROTO_VERSION);
    if (size != want->size || head.size != want->size)
        return err_set(err, ERR_INVALID, 0, "%s: %zu bytes, says %u, must be %zu", want->name,
                       size, head.size, want->size);
    memcpy(tail, (const char *)bytes + want->checksum_offset, sizeof(tail));
    sum = checksum_of(bytes, want->checksum_offset, tail[1]);
    if (tail[0] != sum)
        return err_set(err, ERR_INVALID, 0, "%s: checksum is 0x%08x, must be 0x%08x",
                       want->name, tail[0], sum);
    if (tail[1] != 0)
        return err_set(err, ERR_INVALID, 0, "%s: reserved is %u, must be 0", want->name,
                       tail[1]);
    return 0;
}

struct bounded {
    const char *field;
    uint32_t value;
    uint32_t max;
};

static int check_enums(const char *name, const struct bounded *fields, size_t count,
                       struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (fields[i].value > fields[i].max)
            return err_set(err, ERR_INVALID, 0, "%s: %s is %u, the largest known is %u", name,
                           fields[i].field, fields[i].value, fields[i].max);
    return 0;
}

struct not_negative {
    const char *field;
    int64_t value;
};

static int check_times(const char *name, const struct not_negative *fields, size_t count,
                       struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (fields[i].value < 0)
            return err_set(err, ERR_INVALID, 0, "%s: %s is %lld, must not be negative", name,
                           fields[i].field, (long long)fields[i].value);
    return 0;
}

static int check_flags(const char *name, const char *field, uint32_t value, uint32_t known,
                       struct err *err)
{
    if (value & ~known)
        return err_set(err, ERR_INVALID, 0, "%s: %s 0x%x has unknown bits (known: 0x%x)", name,
                       field, value, known);
    return 0;
}

static int check_text(const char *name, const char *field, const char *text, size_t size,
                      struct err *err)
{
    if (!memchr(text, '\0', size))
        return err_set(err, ERR_INVALID, 0, "%s: %s does not end within %zu bytes", name, field,
                       size);
    return 0;
}

static int check_order_fields(const struct fence_order *order, struct err *err)
{
    const struct bounded enums[] = {
        {"role", order->role, FENCE_ROLE_KILL},
        {"reason", order->reason, FENCE_REASON_LAST},
        {"row", order->row, FENCE_ROW_OURS},
        {"database", order->database, FENCE_DATABASE_DOWN},
    };
    const struct not_negative times[] = {
        {"deadline_ns", order->deadline_ns},
        {"pause_end_ns", order->pause_end_ns},
        {"read_ns", order->read_ns},
        {"heartbeat_still_ns", order->heartbeat_still_ns},
    };

    if (check_enums("order", enums, sizeof(enums) / sizeof(enums[0]), err) < 0 ||
        check_flags("order", "flags", order->flags, ORDER_FLAGS, err) < 0 ||
        check_times("order", times, sizeof(times) / sizeof(times[0]), err) < 0 ||
        check_text("order", "heartbeat_tag", order->heartbeat_tag, sizeof(order->heartbeat_tag),
                   err) < 0)
        return -1;
    if (order->role == FENCE_ROLE_LEADER && order->deadline_ns == 0)
        return err_set(err, ERR_INVALID, 0, "order: leader permit without deadline_ns");
    if (order->role == FENCE_ROLE_KILL && order->reason == FENCE_REASON_NONE)
        return err_set(err, ERR_INVALID, 0, "order: kill without reason");
    if (order->role != FENCE_ROLE_KEEP && order->incarnation == 0)
        return err_set(err, ERR_INVALID, 0, "order: role %s names no incarnation",
                       fence_role_name((enum fence_role)order->role));
    if (order->row != FENCE_ROW_UNKNOWN && order->read_ns == 0)
        return err_set(err, ERR_INVALID, 0, "order: row is known but read_ns is 0");
    return 0;
}

int fence_order_parse(const void *bytes, size_t size, struct fence_order *ret, struct err *err)
{
    static const struct envelope want = {"order", FENCE_ORDER_MAGIC, sizeof(struct fence_order),
                                         offsetof(struct fence_order, checksum)};
    struct fence_order order = {0};

    if (check_envelope(&want, bytes, size, err) < 0)
        return -1;
    memcpy(&order, bytes, sizeof(order));
    if (check_order_fields(&order, err) < 0)
        return -1;
    *ret = order;
    return 0;
}

static int check_status_fields(const struct fence_status *status, struct err *err)
{
    const struct fence_death *death = &status->last_death;
    const struct bounded enums[] = {
        {"state", status->state, SHIM_ENDED},
        {"permit", status->permit, FENCE_ROLE_LEADER},
        {"hold", status->hold, SHIM_HOLD_LAST},
        {"last_death.reason", death->reason, FENCE_REASON_LAST},
        {"last_death.engaged", death->engaged, 1},
        {"last_death.reserved", death->reserved, 0},
    };
    const struct not_negative times[] = {
        {"written_ns", status->written_ns},     {"pid", status->pid},
        {"started_ns", status->started_ns},     {"engaged_ns", status->engaged_ns},
        {"deadline_ns", status->deadline_ns},   {"hold_until_ns", status->hold_until_ns},
        {"pause_end_ns", status->pause_end_ns}, {"last_death.decided_ns", death->decided_ns},
        {"last_death.dead_ns", death->dead_ns}, {"last_death.deadline_ns", death->deadline_ns},
    };

    if (check_enums("status", enums, sizeof(enums) / sizeof(enums[0]), err) < 0 ||
        check_flags("status", "flags", status->flags, STATUS_FLAGS, err) < 0 ||
        check_flags("status", "ports", status->ports, PORT_FLAGS, err) < 0 ||
        check_times("status", times, sizeof(times) / sizeof(times[0]), err) < 0 ||
        check_text("status", "boot_id", status->boot_id, sizeof(status->boot_id), err) < 0 ||
        check_text("status", "tag", status->tag, sizeof(status->tag), err) < 0 ||
        check_text("status", "last_death.tag", death->tag, sizeof(death->tag), err) < 0)
        return -1;
    return 0;
}

int fence_status_parse(const void *bytes, size_t size, struct fence_status *ret,
                       struct err *err)
{
    static const struct envelope want = {"status", FENCE_STATUS_MAGIC,
                                         sizeof(struct fence_status),
                                         offsetof(struct fence_status, checksum)};
    struct fence_status status = {0};

    if (check_envelope(&want, bytes, size, err) < 0)
        return -1;
    memcpy(&status, bytes, sizeof(status));
    if (check_status_fields(&status, err) < 0)
        return -1;
    *ret = status;
    return 0;
}

const char *fence_reason_name(enum fence_reason reason)
{
    switch (reason) {
    case FENCE_REASON_NONE: return "None";
    case FENCE_REASON_MANUAL: return "Manual";
    case FENCE_REASON_LEASE_EXPIRED: return "LeaseExpired";
    case FENCE_REASON_AGENT_LOST: return "AgentLost";
    case FENCE_REASON_SUPERSEDED: return "Superseded";
    case FENCE_REASON_TWIN_IDENTITY: return "TwinIdentity";
    case FENCE_REASON_DATABASE_REPLACED: return "DatabaseReplaced";
    case FENCE_REASON_PHANTOM_LEADER: return "PhantomLeader";
    case FENCE_REASON_DIVERGED_LEADER: return "DivergedLeader";
    case FENCE_REASON_HANDOVER: return "Handover";
    }
    return "?";
}

const char *shim_hold_name(enum shim_hold hold)
{
    switch (hold) {
    case SHIM_HOLD_NONE: return "None";
    case SHIM_HOLD_MANUAL: return "Manual";
    case SHIM_HOLD_AGENT_REQUIRED: return "AgentRequired";
    case SHIM_HOLD_TWIN: return "Twin";
    case SHIM_HOLD_PHANTOM: return "Phantom";
    case SHIM_HOLD_IDENTITY: return "Identity";
    case SHIM_HOLD_LEASE: return "Lease";
    case SHIM_HOLD_DATABASE: return "Database";
    case SHIM_HOLD_STORM: return "Storm";
    case SHIM_HOLD_BACKOFF: return "Backoff";
    case SHIM_HOLD_RESET: return "Reset";
    case SHIM_HOLD_HANDOVER: return "Handover";
    }
    return "?";
}

const char *shim_state_name(enum shim_state state)
{
    switch (state) {
    case SHIM_HOLDING: return "Holding";
    case SHIM_RUNNING: return "Running";
    case SHIM_KILLING: return "Killing";
    case SHIM_TERMINATING: return "Terminating";
    case SHIM_ENDED: return "Ended";
    }
    return "?";
}

const char *fence_role_name(enum fence_role role)
{
    switch (role) {
    case FENCE_ROLE_KEEP: return "Keep";
    case FENCE_ROLE_FOLLOWER: return "Follower";
    case FENCE_ROLE_LEADER: return "Leader";
    case FENCE_ROLE_KILL: return "Kill";
    }
    return "?";
}
