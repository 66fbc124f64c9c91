// SPDX-License-Identifier: Apache-2.0
// What the checks of `metafence doctor` make of pods, options and files; the rest of them is
// shown end to end by tests/e2e/test_doctor.py.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "agent/config.h"
#include "agent/doctor/doctor.h"
#include "agent/pg/survey.h"

#define SIDECAR(user, ready)                                                                   \
    "{\"name\":\"metafence\",\"restartPolicy\":\"Always\","                                    \
    "\"securityContext\":{\"runAsUser\":" user "},"                                            \
    "\"ports\":[{\"name\":\"mf\",\"containerPort\":9690}],"                                    \
    "\"startupProbe\":{\"httpGet\":{\"path\":\"/startupz\",\"port\":9690}},"                   \
    "\"readinessProbe\":{" ready "\"httpGet\":{\"path\":\"/readyz\",\"port\":\"mf\"}},"        \
    "\"livenessProbe\":{\"httpGet\":{\"path\":\"/livez\",\"port\":9690}}}"
#define META(user, liveness)                                                                   \
    "{\"name\":\"meta\",\"command\":[\"/risingwave/bin/"                                       \
    "risingwave\"],\"args\":[\"meta-node\"],"                                                  \
    "\"securityContext\":{\"runAsUser\":" user "},"                                            \
    "\"env\":[{\"name\":\"RW_ADVERTISE_ADDR\",\"value\":\"$(POD_NAME).m:5690\"}],"             \
    "\"livenessProbe\":{\"httpGet\":{" liveness "}}}"
#define POD(shared, sidecar, meta)                                                             \
    "{\"metadata\":{\"name\":\"m-0\"},\"spec\":{\"shareProcessNamespace\":" shared             \
    ",\"initContainers\":[" sidecar "],\"containers\":[" meta "]}}"
#define LIVEZ "\"path\":\"/meta/livez\",\"port\":9690"

static struct config config;

static int setup(void **state)
{
    (void)state;
    config_defaults(&config);
    (void)snprintf(config.core.id, sizeof(config.core.id), "M-0.m:5690");
    (void)snprintf(config.pod_uid, sizeof(config.pod_uid), "12345678-uid");
    return 0;
}

// "check level …" of everything that is not good.
static void describe(const struct doctor *doctor, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < doctor->count; i++) {
        const struct doctor_finding *finding = &doctor->list[i];
        bool is_fault = finding->level == DOCTOR_WARN || finding->level == DOCTOR_BAD;

        assert_true(finding->text[0] != '\0');
        assert_int_equal(finding->fix[0] != '\0', is_fault);
        if (is_fault)
            used += (size_t)snprintf(buf + used, size - used, "%s%s %s", used ? ", " : "",
                                     finding->check, doctor_level_name(finding->level));
    }
}

static void test_pods_in_pidfd_mode(void **state)
{
    static const struct {
        const char *pod;
        const char *faults;
    } cases[] = {
        {POD("true", SIDECAR("7", ""), META("7", LIVEZ)), ""},
        {POD("true", SIDECAR("0", ""), META("7", LIVEZ)), ""}, // root may kill everybody
        {POD("true", SIDECAR("8", ""), META("7", LIVEZ)), "pod.users failed"},
        {POD("false", SIDECAR("7", ""), META("7", LIVEZ)), "pod.process-namespace failed"},
        {POD("true", SIDECAR("7", ""), META("7", "\"path\":\"/\",\"port\":9690")),
         "probe.liveness failed"},
        {POD("true", SIDECAR("7", ""), META("7", "\"path\":\"/meta/livez\",\"port\":9691")),
         "probe.liveness failed"},
        {POD("true", SIDECAR("7", "\"periodSeconds\":1,"), META("7", LIVEZ)),
         "probe.sidecar failed"},
        {POD("true", SIDECAR("7", ""), "{\"name\":\"x\"}"), "pod.meta failed"},
        {POD("true", "", META("7", LIVEZ)), "pod.sidecar failed"},
        {"{}", "pod.sidecar failed, pod.meta failed"},
        {"{\"spec\":{\"containers\":[1,{\"command\":[2,null]}],\"initContainers\":\"x\"}}",
         "pod.sidecar failed, pod.meta failed"},
    };

    (void)state;
    config.fence_method = FENCE_BY_PIDFD;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doctor doctor = {0};
        cJSON *pod = cJSON_Parse(cases[i].pod);
        char faults[400];

        assert_non_null(pod);
        doctor_pod(&doctor, pod, &config, &(struct doctor_users){-1, -1});
        describe(&doctor, faults, sizeof(faults));
        if (strcmp(faults, cases[i].faults) != 0)
            fail_msg("case %zu: \"%s\", want \"%s\"", i, faults, cases[i].faults);
        cJSON_Delete(pod);
    }
}

static void test_annotations(void **state)
{
    static const struct {
        const char *annotations;
        const char *says; // part of the one fault; NULL: none
    } cases[] = {
        {"{}", NULL},
        {"{\"metafence.io/fence\":\"disk\",\"metafence.io/pause-until\":\"x\"}", NULL},
        {"{\"metafence.io/log-level\":\"debug\",\"metafence.io/poll\":\"1s\"}", NULL},
        {"{\"metafence.io/connect-timeout\":\"1s\",\"other.io/image\":\"y\"}", NULL},
        {"{\"metafence.io/query-timeout\":\"1s\",\"metafence.io/image\":\"r/m:1\"}", NULL},
        {"{\"metafence.io/loglevel\":\"debug\"}", "nobody reads metafence.io/loglevel"},
        {"{\"metafence.io/\":\"\"}", "nobody reads metafence.io/"},
        {"{\"metafence.io/inject\":\"true\"}", "nobody reads metafence.io/inject"}, // a label
        {"{\"metafence.io/image\":\"r/m:2\"}", "is \"r/m:2\", the sidecar runs r/m:1"},
        {"{\"metafence.io/image\":7}", NULL},
        {"7", NULL},
    };
    char text[1200];

    (void)state;
    config.fence_method = FENCE_BY_PIDFD;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doctor doctor = {0};
        char faults[400];
        cJSON *pod = NULL;

        (void)snprintf(text, sizeof(text),
                       "{\"metadata\":{\"name\":\"m-0\",\"annotations\":%s},\"spec\":{"
                       "\"shareProcessNamespace\":true,\"initContainers\":[{\"image\":"
                       "\"r/m:1\",%s],\"containers\":[" META("7", LIVEZ) "]}}",
                       cases[i].annotations, &SIDECAR("7", "")[1]);
        pod = cJSON_Parse(text);
        assert_non_null(pod);
        doctor_pod(&doctor, pod, &config, &(struct doctor_users){-1, -1});
        describe(&doctor, faults, sizeof(faults));
        assert_string_equal(faults, cases[i].says ? "pod.annotations failed" : "");
        for (size_t j = 0; j < doctor.count && cases[i].says; j++)
            if (doctor.list[j].level == DOCTOR_BAD &&
                !strstr(doctor.list[j].text, cases[i].says))
                fail_msg("case %zu: %s", i, doctor.list[j].text);
        cJSON_Delete(pod);
    }
}

// An agent that left its pod's annotations out says why.
static void test_refused_overrides(void **state)
{
    static const char status[] =
        "{\"version\":\"" METAFENCE_VERSION "\",\"id\":\"m-0.m:5690\",\"config\":{"
        "\"valid\":true,\"override_error\":\"%s\"}}";
    static const char *const errors[] = {"", "annotation metafence.io/poll: no"};
    char text[400];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct doctor doctor = {0};
        char faults[2000];
        cJSON *answer = NULL;

        (void)snprintf(text, sizeof(text), status, errors[i]);
        answer = cJSON_Parse(text);
        doctor_agent(&doctor, answer, &config);
        describe(&doctor, faults, sizeof(faults));
        assert_int_equal(strstr(faults, "agent.overrides failed") != NULL, i == 1);
        assert_null(strstr(faults, "agent.config"));
        cJSON_Delete(answer);
    }
}

// What a pod does not say is what is seen.
static void test_users_that_are_seen(void **state)
{
    static const char silent[] =
        "{\"metadata\":{\"name\":\"m-0\"},\"spec\":{\"shareProcessNamespace\":true,"
        "\"initContainers\":[{\"name\":\"metafence\",\"restartPolicy\":\"Always\"}],"
        "\"containers\":[{\"name\":\"meta\",\"args\":[\"meta-node\"]}]}}";
    static const struct {
        struct doctor_users users;
        const char *fault;
    } cases[] = {
        {{0, 0}, ""},
        {{7, 7}, ""},
        {{7, 8}, "pod.users failed"},
        {{7, -1}, "pod.users warning"},
    };
    cJSON *pod = cJSON_Parse(silent);

    (void)state;
    config.fence_method = FENCE_BY_PIDFD;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doctor doctor = {0};
        char faults[800];
        bool is_fault = cases[i].fault[0] != '\0';

        doctor_pod(&doctor, pod, &config, &cases[i].users);
        describe(&doctor, faults, sizeof(faults));
        assert_int_equal(strstr(faults, "pod.users") != NULL, is_fault);
        assert_non_null(strstr(faults, cases[i].fault));
    }
    cJSON_Delete(pod);
}

static void test_options_of_metafence_run(void **state)
{
    static const struct {
        const char *args[8];
        const char *faults;
    } cases[] = {
        {{"metafence-run", "--socket=/run/metafence/fence.sock", "--pod-uid", "12345678-uid"},
         ""},
        {{"metafence-run", "--socket", "/run/metafence/fence.sock", "--pod-uid=12345678-uid",
          "--ttl=30s", "--margin=2000ms", "--service-port=5690"},
         ""},
        {{"metafence-run", "--socket=/run/metafence/fence.sock", "--pod-uid=12345678-uid",
          "--ttl=3s", "--kill-budget=x"},
         "shim.timing failed, shim.timing failed"},
        {{"metafence-run", "--socket=/run/fence.sock", "--pod-uid=87654321-uid", "--ttls=3s"},
         "shim.options failed, shim.options failed"},
        {{"metafence-run", "--socket=/run/metafence/fence.sock", "--pod-uid"},
         "shim.options failed"},
        {{"metafence-run", "--socket=/run/metafence/fence.sock", "--pod-uid=12345678-uid",
          "--when-agent-lost=hold", "--service-port=1"},
         "shim.options failed, shim.agent-lost warning"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doctor doctor = {0};
        struct doctor_shim shim = {0};
        char faults[400];

        while (shim.count < 8 && cases[i].args[shim.count]) {
            shim.args[shim.count] = cases[i].args[shim.count];
            shim.count++;
        }
        doctor_shim(&doctor, &shim, &config);
        describe(&doctor, faults, sizeof(faults));
        if (strcmp(faults, cases[i].faults) != 0)
            fail_msg("case %zu: \"%s\", want \"%s\"", i, faults, cases[i].faults);
    }
}

static void test_toml_of_the_metas(void **state)
{
    static const char store[] = "[meta.meta_store_config]\nacquire_timeout_sec";
    static const struct {
        const char *before;
        const char *value;
        const char *faults;
    } cases[] = {
        {"", " = 300\n", ""},
        {"", "=31", ""},
        {"", " = 30\r\n", "meta.acquire-timeout warning"},
        {"", " = 300s", "meta.acquire-timeout warning"}, // no number: the default counts
        {"[meta]\nmeta_leader_lease_secs = 30\n", " = 300", ""},
        {"[meta]\n  meta_leader_lease_secs = 20 # s\n", " = 300", "meta.lease failed"},
        {"[other]\nmeta_leader_lease_secs = 20\n", " = 300", ""},
        {"[meta]\n#meta_leader_lease_secs = 20\n\n[", " = 300", "meta.acquire-timeout warning"},
        {"meta.meta_leader_lease_secs = 20\n", " = 300", "meta.lease failed"},
        {"[meta]\nmeta_leader_lease_secs = 99999999999999999999\n", " = 300", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doctor doctor = {0};
        char text[400], faults[400];

        (void)snprintf(text, sizeof(text), "%s%s%s", cases[i].before, store, cases[i].value);
        doctor_meta_config(&doctor, text, &config);
        describe(&doctor, faults, sizeof(faults));
        if (strcmp(faults, cases[i].faults) != 0)
            fail_msg("case %zu: \"%s\", want \"%s\"", i, faults, cases[i].faults);
    }
}

// A good database, to be bent by each case.
static struct pg_survey good_survey(void)
{
    struct pg_survey survey = {
        .version_wanted = 2, .may_act = true, .may_signal = true, .temp_limit_kb = -1};

    survey.status = (struct sql_status){.has_schema = true,
                                        .can_read = true,
                                        .version = 2,
                                        .guard = "enforce",
                                        .recovery = "observe",
                                        .owner = "meta",
                                        .has_table = true,
                                        .has_trigger = true,
                                        .is_trigger_on = true,
                                        .has_tables = true,
                                        .is_verified = true,
                                        .catalog_version = "m20260804_x",
                                        .guarded = 20,
                                        .tags = 3};
    return survey;
}

static void expect_survey(const struct pg_survey *survey, const char *wanted)
{
    struct doctor doctor = {0};
    char faults[400];

    doctor_postgres(&doctor, survey);
    describe(&doctor, faults, sizeof(faults));
    assert_string_equal(faults, wanted);
}

static void test_surveys(void **state)
{
    struct pg_survey survey = good_survey();

    (void)state;
    expect_survey(&survey, "");
    survey.statement_ms = 5000; // the boundary
    survey.standbys = 1;
    survey.is_synchronous = true;
    expect_survey(&survey, "");
    survey.statement_ms = 4999;
    survey.status.is_verified = false;
    survey.is_synchronous = false;
    expect_survey(&survey, "postgres.statement-timeout failed, risingwave.version warning, "
                           "postgres.replication warning");
    survey = good_survey();
    survey.temp_limit_kb = 1024 * 1024; // the boundary
    expect_survey(&survey, "");
    survey.temp_limit_kb--;
    survey.prepared = 1;
    (void)snprintf(survey.partitions, sizeof(survey.partitions), "worker");
    expect_survey(&survey, "postgres.temp-file-limit warning, postgres.prepared failed, "
                           "postgres.partitions failed");
    survey = good_survey();
    survey.status.version = 1;
    survey.may_signal = false;
    survey.superseded_alive = 1;
    survey.status.pooled_tags = 1;
    expect_survey(&survey, "postgres.schema failed, postgres.owner failed, "
                           "postgres.superseded failed, postgres.pooler warning");
    survey = good_survey();
    (void)snprintf(survey.status.recovery, sizeof(survey.status.recovery), "enforce");
    expect_survey(&survey, "");
    survey.status.is_verified = false; // it does as observe then
    expect_survey(&survey, "postgres.recovery warning, risingwave.version warning");
    survey.status.catalog_version[0] = '\0';
    survey.status.has_tables = false; // a fresh cluster
    expect_survey(&survey, "");
    survey = good_survey();
    (void)snprintf(survey.status.unwatched_names, sizeof(survey.status.unwatched_names), "x");
    expect_survey(&survey, "postgres.recovery failed");
    survey.status.recovery[0] = '\0';
    expect_survey(&survey, "postgres.recovery failed");
    survey = good_survey();
    (void)snprintf(survey.status.guard, sizeof(survey.status.guard), "off");
    survey.status.unguarded = 2;
    survey.status.counters.unreadable = 1;
    survey.status.tags = 0;
    expect_survey(&survey, "postgres.guard failed, postgres.guarded-tables failed, "
                           "postgres.guard-failures warning, postgres.tags warning");
}

static void test_modes_of_ordered_recovery(void **state)
{
    static const struct {
        const char *schema;
        enum order_mode agent;
        enum fence_method_choice method;
        const char *wanted; // what it says and how to mend it, or "" for nothing
    } cases[] = {
        {"observe", ORDER_OBSERVE, FENCE_BY_SHIM, ""},
        {"observe", ORDER_OFF, FENCE_BY_SHIM, ""},
        {"observe", ORDER_OBSERVE, FENCE_BY_PIDFD, ""},
        {"enforce", ORDER_ENFORCE, FENCE_BY_SHIM, ""},
        {"", ORDER_ENFORCE, FENCE_BY_SHIM, ""}, // postgres.recovery says that it is missing
        {"observe", ORDER_ENFORCE, FENCE_BY_SHIM, "no purge is refused"},
        {"off", ORDER_ENFORCE, FENCE_BY_SHIM, "the schema says off"},
        {"enforce", ORDER_OBSERVE, FENCE_BY_SHIM, "the gate stays open"},
        {"enforce", ORDER_OFF, FENCE_BY_SHIM, "recovery.mode is off"},
        {"enforce", ORDER_ENFORCE, FENCE_BY_PIDFD, "without metafence-run's session tags"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pg_survey survey = good_survey();
        struct config of_agent = {.recovery.mode = cases[i].agent,
                                  .fence_method = cases[i].method};
        struct doctor doctor = {0};
        const struct doctor_finding *found = &doctor.list[0];

        (void)snprintf(survey.status.recovery, sizeof(survey.status.recovery), "%s",
                       cases[i].schema);
        doctor_recovery(&doctor, &survey, &of_agent);
        assert_int_equal(doctor.count, 1);
        assert_string_equal(found->check, "recovery.modes");
        assert_int_equal(found->level == DOCTOR_WARN, cases[i].wanted[0] != '\0');
        assert_int_equal(found->fix[0] != '\0', cases[i].wanted[0] != '\0');
        if (cases[i].wanted[0])
            assert_non_null(strstr(found->text, cases[i].wanted));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(test_pods_in_pidfd_mode, setup),
    cmocka_unit_test_setup(test_annotations, setup),
    cmocka_unit_test_setup(test_refused_overrides, setup),
    cmocka_unit_test_setup(test_users_that_are_seen, setup),
    cmocka_unit_test_setup(test_options_of_metafence_run, setup),
    cmocka_unit_test_setup(test_toml_of_the_metas, setup),
    cmocka_unit_test(test_surveys),
    cmocka_unit_test(test_modes_of_ordered_recovery),
};

UNIT_MAIN(tests)
