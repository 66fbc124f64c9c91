// SPDX-License-Identifier: Apache-2.0
// Which container serves a port, and whether its kubelet says that it has ended.
#include "tests/unit/k8s/parse.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "k8s/pod.h"

#define ONE "{\"name\":\"compute\",\"ports\":[{\"containerPort\":5688}]}"
#define TWO ONE ",{\"name\":\"mesh\",\"ports\":[{\"containerPort\":15001}]}"
#define STATUS(name, id, state)                                                                \
    "{\"name\":\"" name "\",\"containerID\":\"" id "\",\"state\":{" state "}}"
#define RUNNING "\"running\":{}"
#define ENDED   "\"terminated\":{\"exitCode\":137}"

static const struct {
    const char *name;
    const char *containers;
    const char *statuses;
    const char *id; // NULL: not told
    bool has_ended;
} rows[] = {
    {"the only one", "{\"name\":\"compute\"}", STATUS("compute", "c://1", RUNNING), "c://1",
     false},
    {"by its port", TWO, STATUS("mesh", "c://9", ENDED) "," STATUS("compute", "c://1", RUNNING),
     "c://1", false},
    {"ended", TWO, STATUS("compute", "c://1", ENDED) "," STATUS("mesh", "c://9", RUNNING),
     "c://1", true},
    {"no port is declared", "{\"name\":\"compute\"},{\"name\":\"mesh\"}",
     STATUS("compute", "c://1", ENDED), NULL, false},
    {"two declare it", ONE "," ONE, STATUS("compute", "c://1", ENDED), NULL, false},
    {"not started yet", ONE, STATUS("compute", "", "\"waiting\":{}"), NULL, false},
    {"no status", ONE, "", NULL, false},
    {"waits after its end", ONE,
     "{\"name\":\"compute\",\"containerID\":\"c://1\",\"state\":{\"waiting\":{}},"
     "\"lastState\":{\"terminated\":{\"containerID\":\"c://1\"}}}",
     "c://1", true},
    {"runs after an end", ONE,
     "{\"name\":\"compute\",\"containerID\":\"c://2\",\"state\":{\"running\":{}},"
     "\"lastState\":{\"terminated\":{\"containerID\":\"c://1\"}}}",
     "c://2", false},
    {"nothing is said of its state", ONE, "{\"name\":\"compute\",\"containerID\":\"c://1\"}",
     "c://1", false},
};

static int read(const char *containers, const char *statuses, struct k8s_pod_process *ret,
                char *id, struct err *err)
{
    char text[1024];
    struct k8s_pod pod = {0};
    cJSON *object = NULL;
    int rc = 0;

    (void)snprintf(text, sizeof(text),
                   "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"uid\":\"u\","
                   "\"resourceVersion\":\"1\"},"
                   "\"spec\":{\"containers\":[%s]},\"status\":{\"containerStatuses\":[%s]}}",
                   containers, statuses);
    object = parse(text);
    assert_int_equal(k8s_pod_parse(object, &pod, err), 0);
    rc = k8s_pod_process_parse(&pod, 5688, ret, err);
    (void)snprintf(id, 32, "%s", rc == 0 && ret->container_id ? ret->container_id : "");
    cJSON_Delete(object);
    return rc;
}

static void test_processes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct k8s_pod_process process = {0};
        struct err err = {0};
        char id[32];

        if (read(rows[i].containers, rows[i].statuses, &process, id, &err) < 0)
            fail_msg("%s: %s", rows[i].name, err.msg);
        if (strcmp(id, rows[i].id ? rows[i].id : "") != 0 ||
            process.has_ended != rows[i].has_ended)
            fail_msg("%s: \"%s\", ended %d", rows[i].name, id, process.has_ended);
    }
}

static void test_wrong(void **state)
{
    static const struct {
        const char *containers, *statuses, *said;
    } wrong[] = {
        {"{\"name\":7}", "", "spec.containers"},
        {"{\"name\":\"a\",\"ports\":7}", "", "spec.containers"},
        {ONE, "{\"name\":\"compute\",\"containerID\":7}", "status.containerStatuses"},
        {ONE, "{\"name\":\"compute\",\"state\":7}", "status.containerStatuses"},
        {ONE, "7", "status.containerStatuses"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct k8s_pod_process process = {0};
        struct err err = {0};
        char id[32];

        assert_int_equal(read(wrong[i].containers, wrong[i].statuses, &process, id, &err), -1);
        if (!strstr(err.msg, wrong[i].said))
            fail_msg("%zu: %s", i, err.msg);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_processes),
    cmocka_unit_test(test_wrong),
};

UNIT_MAIN(tests)
