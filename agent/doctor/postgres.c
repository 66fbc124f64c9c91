// SPDX-License-Identifier: Apache-2.0
// The meta store: schema, rights, guard, tags, time-outs, release.
#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "agent/pg/survey.h"

#define STATEMENT_MIN_MS 5000            // below it the guard's own statements are cut off
#define TEMP_MIN_KB      (1024LL * 1024) // no statement of a meta writes that much
#define INSTALL          "metafence sql install --config FILE, as the metas' own role"

static void check_version(struct doctor *doctor, const struct pg_survey *survey)
{
    int version = survey->status.version;
    int wanted = survey->version_wanted;

    if (version != wanted)
        doctor_bad(
            doctor, "postgres.schema", version < wanted ? INSTALL : "update this agent's image",
            "schema metafence is version %d, this program works with %d", version, wanted);
    else
        doctor_ok(doctor, "postgres.schema", "version %d", version);
}

static void check_rights(struct doctor *doctor, const struct pg_survey *survey)
{
    const struct sql_status *status = &survey->status;

    if (!status->can_read || !survey->may_act)
        doctor_bad(doctor, "postgres.rights",
                   "metafence sql install --agent-role ROLE, as the metas' own role",
                   "role %.60s may not %s in schema metafence", survey->role,
                   status->can_read ? "act" : "read");
    else
        doctor_ok(doctor, "postgres.rights", "role %.60s may read and act", survey->role);
    if (!survey->may_signal)
        doctor_bad(doctor, "postgres.owner",
                   "install as the metas' role, or GRANT pg_signal_backend to the owner",
                   "the schema's owner %.60s may not end sessions of the metas' role %.60s",
                   status->owner, survey->meta_role);
    else
        doctor_ok(doctor, "postgres.owner", "%.60s may end the sessions of %.60s",
                  status->owner, survey->meta_role);
}

static void check_schema(struct doctor *doctor, const struct pg_survey *survey)
{
    const struct sql_status *status = &survey->status;

    if (!status->has_schema) {
        doctor_bad(doctor, "postgres.schema", INSTALL, "schema metafence is not installed");
        return;
    }
    if (status->can_read)
        check_version(doctor, survey);
    check_rights(doctor, survey);
    if (!status->is_trigger_on)
        doctor_bad(doctor, "postgres.trigger", INSTALL,
                   "the triggers of the leader table are %s: terms are not numbered",
                   status->has_trigger ? "disabled or incomplete" : "missing");
    else
        doctor_ok(doctor, "postgres.trigger", "terms are numbered, the newest is %lld",
                  (long long)status->term);
}

static void check_guard(struct doctor *doctor, const struct sql_status *status)
{
    static const char fix[] = "metafence sql install --config FILE --guard enforce";

    if (strcmp(status->guard, "enforce") == 0)
        doctor_ok(doctor, "postgres.guard", "enforce");
    else if (strcmp(status->guard, "observe") == 0)
        doctor_warn(doctor, "postgres.guard", fix,
                    "observe: writes of superseded metas are counted, not refused");
    else
        doctor_bad(doctor, "postgres.guard", fix, "%s: superseded metas may write",
                   status->guard);
    if (status->unguarded > 0)
        doctor_bad(doctor, "postgres.guarded-tables", INSTALL,
                   "%lld tables without guard: %.200s", (long long)status->unguarded,
                   status->unguarded_names);
    else if (!status->has_tables)
        doctor_skip(doctor, "postgres.guarded-tables",
                    "the metas have not made their tables yet");
    else
        doctor_ok(doctor, "postgres.guarded-tables", "%lld", (long long)status->guarded);
    if (status->counters.takeover_without_lock > 0 || status->counters.unreadable > 0)
        doctor_warn(doctor, "postgres.guard-failures", "metafence sql status --config FILE",
                    "since the installation %lld takeovers went on beside a writer, and %lld "
                    "statements could not be judged",
                    (long long)status->counters.takeover_without_lock,
                    (long long)status->counters.unreadable);
}

static void check_recovery(struct doctor *doctor, const struct sql_status *status)
{
    if (!status->recovery[0])
        doctor_bad(doctor, "postgres.recovery", INSTALL, "ordered recovery is not installed");
    else if (status->unwatched_names[0])
        doctor_bad(doctor, "postgres.recovery", INSTALL,
                   "tables without the recovery's trigger: %.200s", status->unwatched_names);
    else if (strcmp(status->recovery, "enforce") == 0 && !status->is_verified &&
             status->has_tables)
        doctor_warn(doctor, "postgres.recovery",
                    "look for a release of metafence that knows this version of RisingWave",
                    "version %.60s is not verified: enforce does as observe",
                    status->catalog_version);
    else
        doctor_ok(doctor, "postgres.recovery", "%s", status->recovery);
}

static void check_tags(struct doctor *doctor, const struct pg_survey *survey)
{
    const struct sql_status *status = &survey->status;

    if (survey->untagged > 0)
        doctor_bad(
            doctor, "postgres.tags",
            "start each meta by metafence-run; people and tools take another role",
            "%lld sessions of the metas' role %.60s have no session tag: what they write "
            "is never refused",
            (long long)survey->untagged, survey->meta_role);
    else if (status->tags == 0)
        doctor_warn(doctor, "postgres.tags", "start each meta by metafence-run",
                    "no session tag was ever seen");
    else
        doctor_ok(doctor, "postgres.tags", "%lld seen", (long long)status->tags);
    if (survey->superseded_alive > 0)
        doctor_bad(doctor, "postgres.superseded",
                   "look at the agent beside it: metafence status, in each meta's pod",
                   "%lld sessions belong to metas that were superseded: they live",
                   (long long)survey->superseded_alive);
}

static void check_pooler(struct doctor *doctor, const struct sql_status *status)
{
    static const char fix[] =
        "give metas and agents the server's own address: a session tag belongs to a session";

    if (status->is_pooled)
        doctor_bad(doctor, "postgres.pooler", fix, "this connection goes through a pooler");
    else if (status->pooled_tags > 0)
        doctor_warn(doctor, "postgres.pooler", fix,
                    "%lld tags came on a session of another tag: the metas go through a pooler",
                    (long long)status->pooled_tags);
    else
        doctor_ok(doctor, "postgres.pooler", "none");
}

static void check_timeouts(struct doctor *doctor, const struct pg_survey *survey)
{
    if (survey->statement_ms > 0 && survey->statement_ms < STATEMENT_MIN_MS)
        doctor_bad(doctor, "postgres.statement-timeout",
                   "ALTER ROLE … SET statement_timeout = 0, or 5 s and more",
                   "%lld ms for the metas' role: a campaign that waits for a lock becomes an "
                   "error, and an error a second leader",
                   (long long)survey->statement_ms);
    else
        doctor_ok(doctor, "postgres.statement-timeout", "%lld ms",
                  (long long)survey->statement_ms);
    if (survey->lock_ms > 0)
        doctor_warn(doctor, "postgres.lock-timeout", "ALTER ROLE … SET lock_timeout = 0",
                    "%lld ms for the metas' role: the guard has bounds of its own",
                    (long long)survey->lock_ms);
    else
        doctor_ok(doctor, "postgres.lock-timeout", "none");
}

// What takes writes past the guard, or makes them fail for it.
static void check_limits(struct doctor *doctor, const struct pg_survey *survey)
{
    if (survey->temp_limit_kb >= 0 && survey->temp_limit_kb < TEMP_MIN_KB)
        doctor_warn(doctor, "postgres.temp-file-limit",
                    "ALTER ROLE … SET temp_file_limit = -1, or 1 GB and more",
                    "%lld kB for the metas' role: a statement whose rows go beyond work_mem "
                    "fails at it, because the guard's trigger is shown them",
                    (long long)survey->temp_limit_kb);
    else
        doctor_ok(doctor, "postgres.temp-file-limit", "%lld kB",
                  (long long)survey->temp_limit_kb);
    if (survey->prepared > 0)
        doctor_bad(doctor, "postgres.prepared",
                   "look at pg_prepared_xacts: COMMIT or ROLLBACK PREPARED",
                   "%lld prepared transactions: no takeover can end them, and what they wrote "
                   "may be committed after it",
                   (long long)survey->prepared);
    if (survey->partitions[0])
        doctor_bad(doctor, "postgres.partitions",
                   "let metadata be in tables of their own, as RisingWave makes them",
                   "writes through the parent tables of %.190s are not guarded",
                   survey->partitions);
}

// metafence.verified is the one list of what was looked at.
static void check_release(struct doctor *doctor, const struct sql_status *status)
{
    if (!status->recovery[0])
        doctor_skip(doctor, "risingwave.version", "the installed schema says it, when it is");
    else if (!status->catalog_version[0])
        doctor_skip(doctor, "risingwave.version",
                    "no migrations are recorded, or not readable");
    else if (!status->is_verified)
        doctor_warn(doctor, "risingwave.version",
                    "look for a release of metafence that names it; `sql install` again after "
                    "each upgrade of RisingWave",
                    "the catalog (%.60s) is none that metafence.verified names",
                    status->catalog_version);
    else
        doctor_ok(doctor, "risingwave.version", "catalog %.60s", status->catalog_version);
}

void doctor_postgres(struct doctor *doctor, const struct pg_survey *survey)
{
    doctor_ok(doctor, "postgres", "a primary answers");
    check_schema(doctor, survey);
    if (survey->status.has_schema && survey->status.can_read) {
        check_guard(doctor, &survey->status);
        check_recovery(doctor, &survey->status);
        check_tags(doctor, survey);
    }
    check_pooler(doctor, &survey->status);
    check_timeouts(doctor, survey);
    check_limits(doctor, survey);
    check_release(doctor, &survey->status);
    if (survey->standbys > 0 && !survey->is_synchronous)
        doctor_warn(doctor, "postgres.replication", "set synchronous_standby_names",
                    "replication is asynchronous: a failover that loses the last term has two "
                    "leaders until the next read");
    else
        doctor_ok(doctor, "postgres.replication", "%s",
                  survey->standbys > 0 ? "synchronous" : "no standby");
}

void doctor_recovery(struct doctor *doctor, const struct pg_survey *survey,
                     const struct config *config)
{
    static const char *const modes[] = {
        [ORDER_OFF] = "off", [ORDER_OBSERVE] = "observe", [ORDER_ENFORCE] = "enforce"};
    bool schema_enforces = strcmp(survey->status.recovery, "enforce") == 0;
    bool agent_enforces = config->recovery.mode == ORDER_ENFORCE;

    if (!survey->status.recovery[0])
        doctor_skip(doctor, "recovery.modes", "the schema says none");
    else if (agent_enforces && config->fence_method == FENCE_BY_PIDFD)
        doctor_warn(doctor, "recovery.modes", "fence.method shim, or recovery.mode observe",
                    "enforce does as observe without metafence-run's session tags");
    else if (agent_enforces && !schema_enforces)
        doctor_warn(doctor, "recovery.modes",
                    "metafence sql install --config FILE --recovery enforce, when each agent "
                    "enforces",
                    "the agent enforces, the schema says %s: no purge is refused",
                    survey->status.recovery);
    else if (schema_enforces && !agent_enforces)
        doctor_warn(doctor, "recovery.modes",
                    "recovery.mode: enforce in each agent's configuration, or "
                    "metafence sql install --config FILE --recovery observe",
                    "the schema enforces, the agent's recovery.mode is %s: the gate stays open",
                    modes[config->recovery.mode]);
    else
        doctor_ok(doctor, "recovery.modes", "agent %s, schema %s", modes[config->recovery.mode],
                  survey->status.recovery);
}
