// SPDX-License-Identifier: Apache-2.0
// How logs, metrics and status show it.
#include "agent/recovery/order.h"

const char *order_step_name(enum order_step step)
{
    static const char *const names[ORDER_STEPS] = {
        [ORDER_IDLE] = "IDLE",           [ORDER_DRAIN] = "DRAIN",
        [ORDER_FENCE] = "FENCE",         [ORDER_RESET_NODES] = "RESET",
        [ORDER_RECONCILE] = "RECONCILE", [ORDER_RECLAIM] = "RECLAIM",
        [ORDER_ADMIT] = "ADMIT",
    };

    return names[step];
}

const char *order_wait_name(enum order_wait wait)
{
    static const char *const names[ORDER_WAITS] = {
        [ORDER_WAIT_NOTHING] = "nothing",
        [ORDER_WAIT_STATE] = "the database's word",
        [ORDER_WAIT_DROPS] = "dropped jobs",
        [ORDER_WAIT_CREATES] = "jobs being created",
        [ORDER_WAIT_DEATH] = "the death of our meta",
        [ORDER_WAIT_PREDECESSOR] = "the old leader's death",
        [ORDER_WAIT_ROW] = "the election row",
        [ORDER_WAIT_NODES] = "the list of compute nodes",
        [ORDER_WAIT_REFUSAL] = "a removal",
        [ORDER_WAIT_STATUS] = "the recovery status",
        [ORDER_WAIT_RESETS] = "resets",
        [ORDER_WAIT_RECORD] = "acknowledgements to be recorded",
        [ORDER_WAIT_REMOVAL] = "meta's next attempt",
        [ORDER_WAIT_END] = "the end of the recovery",
        [ORDER_WAIT_SUCCESSOR] = "another leader",
    };

    return names[wait];
}

const char *order_block_name(enum order_block block)
{
    static const char *const names[ORDER_BLOCKS] = {
        [ORDER_MAY] = "may reset",
        [ORDER_ROW_UNREAD] = "election row not read",
        [ORDER_STATUS_UNREAD] = "recovery status not read",
        [ORDER_STATE_UNREAD] = "database's state not read",
        [ORDER_NOT_REFUSED] = "no removal is refused",
        [ORDER_ACKNOWLEDGED] = "acknowledged",
        [ORDER_NO_HOLD] = "no recovery",
        [ORDER_NOT_ENFORCED] = "not enforced",
        [ORDER_META_LIVES] = "meta lives",
        [ORDER_NO_LEASE] = "no lease",
        [ORDER_ANOTHER_LEADS] = "another leads",
        [ORDER_NOT_LEADER] = "not leader",
        [ORDER_PREDECESSOR_LIVES] = "old leader not known to be dead",
        [ORDER_GATE_OPEN] = "gate open",
        [ORDER_RUNNING] = "recovery is over",
        [ORDER_HOLD_OVER] = "hold over",
    };

    return names[block];
}

const char *order_evidence_name(enum order_evidence evidence)
{
    static const char *const names[ORDER_EVIDENCES] = {
        [ORDER_UNKNOWN] = "UNKNOWN",
        [ORDER_NONE] = "NONE",
        [ORDER_GONE] = "GONE",
        [ORDER_RESET] = "RESET",
    };

    return names[evidence];
}
