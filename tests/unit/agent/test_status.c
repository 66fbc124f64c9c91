// SPDX-License-Identifier: Apache-2.0
// What the world sees of an agent: one valid JSON object, whatever the facts are.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "agent/agent.h"
#include "agent/status.h"
#include "base/buf.h"

// The parsed status; the caller deletes it.
static cJSON *status_of(const struct agent *agent)
{
    struct buf out = {0};
    const char *end = NULL;
    cJSON *status = NULL;

    status_json(agent, &out);
    assert_null(memchr(buf_str(&out), '\n', out.len)); // one line
    status = cJSON_ParseWithLengthOpts(buf_str(&out), out.len, &end, false);
    if (!status || end != buf_str(&out) + out.len)
        fail_msg("not JSON: %s", buf_str(&out));
    buf_done(&out);
    return status;
}

static const char *text_of(const cJSON *status, const char *section, const char *key)
{
    const cJSON *from = section ? cJSON_GetObjectItem(status, section) : status;

    return cJSON_GetStringValue(cJSON_GetObjectItem(from, key));
}

static struct agent *new_agent(void)
{
    struct agent *agent = calloc(1, sizeof(*agent));

    config_defaults(&agent->config);
    (void)snprintf(agent->config.core.id, sizeof(agent->config.core.id), "m0:5690");
    agent->plan.rule = RULE_UNKNOWN;
    return agent;
}

static void test_empty(void **state)
{
    struct agent *agent = new_agent();
    cJSON *status = status_of(agent);
    static const char *const keys[] = {
        "version",    "id",       "podUid",           "rule",         "role",
        "armed",      "engaged",  "superseded",       "paused_until", "manual_fence",
        "row",        "term",     "deadline_ms_left", "not_covered",  "meta",
        "last_fence", "counters", "history"};

    (void)state;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!cJSON_HasObjectItem(status, keys[i]))
            fail_msg("%s is missing", keys[i]);
    assert_string_equal(text_of(status, NULL, "role"), "unknown");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(status, "last_fence")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(status, "deadline_ms_left")));
    cJSON_Delete(status);
    free(agent);
}

// Strings from outside: quotes, control bytes, the longest.
static void test_hostile_strings(void **state)
{
    struct agent *agent = new_agent();
    cJSON *status = NULL;

    (void)state;
    agent->facts.election.known = true;
    memset(agent->facts.election.owner_id, '"', sizeof(agent->facts.election.owner_id) - 1);
    memset(agent->facts.election.owner_tag, '\\', sizeof(agent->facts.election.owner_tag) - 1);
    memset(agent->manual_reason, '\x1b', sizeof(agent->manual_reason) - 1);
    (void)snprintf(agent->database_error, sizeof(agent->database_error), "a\nb\"\t\x7f");
    for (int i = 0; i < 3 * HISTORY_SIZE; i++)
        history_add(&agent->history, &agent->facts, &agent->memory, "rule", "x\"\n\\");
    status = status_of(agent);
    assert_string_equal(text_of(status, "row", "id"), agent->facts.election.owner_id);
    assert_string_equal(text_of(status, "database", "error"), agent->database_error);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(status, "history")), HISTORY_SIZE);
    cJSON_Delete(status);
    free(agent);
}

static void test_extreme_numbers(void **state)
{
    struct agent *agent = new_agent();
    cJSON *status = NULL;

    (void)state;
    agent->facts.election.known = true;
    agent->facts.election.age_ns = 1000;
    agent->memory.deadline = INSTANT_NEVER;
    agent->facts.fence.known = true;
    agent->facts.fence.status.hold = SHIM_HOLD_MANUAL;
    agent->facts.fence.status.hold_until_ns = INT64_MAX;
    agent->facts.election.term = UINT64_MAX;
    agent->plan.not_covered = 0x3f;
    status = status_of(agent);
    assert_true(
        cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(status, "meta"), "hold_ms_left")));
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(status, "not_covered")), 6);
    cJSON_Delete(status);
    free(agent);
}

static void test_history_keeps_the_newest(void **state)
{
    struct agent *agent = new_agent();
    const cJSON *history = NULL;
    cJSON *status = NULL;
    char detail[16];

    (void)state;
    for (int i = 0; i < HISTORY_SIZE + 10; i++) {
        (void)snprintf(detail, sizeof(detail), "%d", i);
        history_add(&agent->history, &agent->facts, &agent->memory, "rule", detail);
    }
    status = status_of(agent);
    history = cJSON_GetObjectItem(status, "history");
    assert_string_equal(text_of(cJSON_GetArrayItem(history, 0), NULL, "detail"), "10");
    assert_string_equal(text_of(cJSON_GetArrayItem(history, HISTORY_SIZE - 1), NULL, "detail"),
                        "73");
    cJSON_Delete(status);
    free(agent);
}

// Each step on the way to a confirmed manual fence, and what is still said to be missing.
static const struct {
    const char *name;
    bool ordered, connected;
    uint32_t flags;
    uint64_t death, gone;
    enum database_state database;
    const char *why; // part of it; "": confirmed
} fences[] = {
    {"not ordered", false, true, 0, 0, 0, DATABASE_ANSWERS, "no fence is ordered"},
    {"not connected", true, false, 0, 0, 0, DATABASE_ANSWERS, "NotFenced: no connection"},
    {"alive", true, true, SHIM_ALIVE | SHIM_MANUAL, 0, 0, DATABASE_ANSWERS, "still alive"},
    {"not taken", true, true, 0, 0, 0, DATABASE_ANSWERS, "not taken the order"},
    {"never ran", true, true, SHIM_MANUAL, 0, 0, DATABASE_ANSWERS, ""},
    {"sessions left", true, true, SHIM_MANUAL, 2, 1, DATABASE_ANSWERS, "not gone yet"},
    {"no database", true, true, SHIM_MANUAL, 2, 1, DATABASE_SILENT, "can't be asked"},
    {"done", true, true, SHIM_MANUAL, 2, 2, DATABASE_SILENT, ""},
};

static void test_fence_confirmation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(fences) / sizeof(fences[0]); i++) {
        struct agent *agent = new_agent();
        cJSON *status = NULL;
        const char *why = NULL;

        agent->facts.orders.manual_fence = fences[i].ordered;
        agent->facts.fence.known = fences[i].connected;
        agent->facts.fence.status.flags = fences[i].flags;
        agent->facts.fence.status.last_death.incarnation = fences[i].death;
        agent->facts.fence.status.last_death.reason = FENCE_REASON_MANUAL;
        memcpy(agent->facts.fence.status.last_death.tag, "metafence:01234567:0123456789abcdef",
               sizeof("metafence:01234567:0123456789abcdef"));
        agent->facts.cleanup.sessions_gone = fences[i].gone;
        agent->facts.database.state = fences[i].database;
        status = status_of(agent);
        why = text_of(status, "fenced", "why");
        if (!strstr(why, fences[i].why) || (fences[i].why[0] == '\0') != (why[0] == '\0'))
            fail_msg("%s: \"%s\"", fences[i].name, why);
        cJSON_Delete(status);
        free(agent);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_empty),
    cmocka_unit_test(test_hostile_strings),
    cmocka_unit_test(test_extreme_numbers),
    cmocka_unit_test(test_history_keeps_the_newest),
    cmocka_unit_test(test_fence_confirmation),
};

UNIT_MAIN(tests)
