// SPDX-License-Identifier: Apache-2.0
#include "agent/core/decide.h"

static int64_t add_saturating(int64_t a, int64_t b)
{
    return instant_add((struct instant){a}, b).ns;
}

static int64_t subtract_saturating(int64_t a, int64_t b)
{
    return instant_since((struct instant){a}, (struct instant){b});
}

struct instant lease_deadline(const struct core_config *config, struct instant sent_at,
                              int64_t age_ns)
{
    int64_t left_ns = subtract_saturating(config->ttl_ns, age_ns > 0 ? age_ns : 0);

    left_ns = subtract_saturating(left_ns, config->margin_ns);
    left_ns = subtract_saturating(left_ns, config->kill_budget_ns);
    return instant_add(sent_at, left_ns);
}

// The longest time between two heartbeats as the agent learns of them, plus what a kill takes.
static int64_t needed_ns(const struct core_config *config)
{
    int64_t read_ns = add_saturating(config->connect_timeout_ns, config->query_timeout_ns);
    int64_t sum_ns = add_saturating(read_ns, read_ns);

    sum_ns = add_saturating(sum_ns, config->poll_ns);
    sum_ns = add_saturating(sum_ns, config->renew_gap_ns);
    sum_ns = add_saturating(sum_ns, config->margin_ns);
    return add_saturating(sum_ns, config->kill_budget_ns);
}

static int check_positive(const struct core_config *config, struct err *err)
{
    const struct {
        const char *name;
        int64_t ns;
    } all[] = {
        {"election.ttl", config->ttl_ns},
        {"postgres.connectTimeout", config->connect_timeout_ns},
        {"postgres.queryTimeout", config->query_timeout_ns},
        {"timing.poll", config->poll_ns},
        {"timing.renewGap", config->renew_gap_ns},
        {"timing.margin", config->margin_ns},
        {"timing.killBudget", config->kill_budget_ns},
        {"timing.maxClockJump", config->max_clock_jump_ns},
        {"timing.phantomAfter", config->phantom_after_ns},
        {"timing.promoteAfter", config->promote_after_ns},
        {"timing.confirmAfter", config->confirm_after_ns},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char text[32];

        if (all[i].ns <= 0)
            return err_set(err, ERR_INVALID, 0, "%s is %s: give a duration above zero",
                           all[i].name, duration_format(all[i].ns, text, sizeof(text)));
    }
    return 0;
}

int core_config_check(const struct core_config *config, struct err *err)
{
    int64_t needed = needed_ns(config);
    char c[32], q[32], p[32], r[32], m[32], k[32], sum[32], ttl[32];

    if (!config->id[0])
        return err_set(err, ERR_INVALID, 0,
                       "id is empty: give meta's advertise address, host:port");
    if (check_positive(config, err))
        return -1;
    if (needed < config->ttl_ns)
        return 0;
    return err_set(
        err, ERR_INVALID, 0,
        "2*(connectTimeout %s + queryTimeout %s) + poll %s + renewGap %s + margin %s + "
        "killBudget %s = %s is not below ttl %s: shorten these, or raise lease and ttl above "
        "%s",
        duration_format(config->connect_timeout_ns, c, sizeof(c)),
        duration_format(config->query_timeout_ns, q, sizeof(q)),
        duration_format(config->poll_ns, p, sizeof(p)),
        duration_format(config->renew_gap_ns, r, sizeof(r)),
        duration_format(config->margin_ns, m, sizeof(m)),
        duration_format(config->kill_budget_ns, k, sizeof(k)),
        duration_format(needed, sum, sizeof(sum)),
        duration_format(config->ttl_ns, ttl, sizeof(ttl)), sum);
}
