// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/config.h"
#include "base/buf.h"
#include "base/clock.h"

#define NEEDED "id: m0:5690\npostgres: {host: db, database: meta, user: rw}\n"

static int parse(const char *text, struct config *config, struct err *err)
{
    struct config_input input = {.name = "f.yaml", .bytes = text, .len = strlen(text)};

    return config_parse(&input, config, err);
}

// Each broken file, and what of place, value and fix its message must hold.
static const struct {
    const char *name;
    const char *text;
    const char *want[3];
} broken[] = {
    {"empty file", "", {"f.yaml: id is missing", "METAFENCE_ID"}},
    {"only a comment", "# nothing\n", {"id is missing"}},
    {"null document", "---\n...\n", {"id is missing"}},
    {"bare text", "hello", {"f.yaml:1:1:", "key: value"}},
    {"a list", "- id\n", {"f.yaml:1:1:", "list"}},
    {"list as value", "id: [a, b]\n", {"f.yaml:1:5:", "list"}},
    {"host missing", "id: a\n", {"postgres.host is missing"}},
    {"empty id", "id: \"\"\n", {"f.yaml:1:5: id: is empty"}},
    {"no value", "id:\n", {"f.yaml:1:4: id has no value"}},
    {"space in id", "id: 'a b'\n", {"f.yaml:1:5: id:", "spaces"}},
    {"control byte", "id: \"a\\x07b\"\n", {"f.yaml:1:5: id:", "control"}},
    {"NUL", "id: \"a\\0b\"\n", {"f.yaml:1:5:", "NUL"}},
    {"raw NUL is no YAML", "id: \x01\n", {"f.yaml:1:5: not YAML"}},
    {"bad UTF-8", "id: a\nlogLevel: \xff\n", {"f.yaml:2:11: not YAML"}},
    {"unclosed quote", "id: \"a\n", {"f.yaml:2:1: not YAML"}},
    {"tab indent", "postgres:\n\thost: a\n", {"f.yaml:2:1: not YAML"}},
    {"typo in a section",
     "timing:\n  pol: 1s\n",
     {"f.yaml:2:3:", "\"timing.pol\"", "timing.poll"}},
    {"wrong section", "poll: 1s\n", {"f.yaml:1:1:", "did you mean timing.poll"}},
    {"wrong case", "onsilence: auto\n", {"did you mean onSilence"}},
    {"nothing near", "quux: 1\n", {"unknown key \"quux\"", "config options"}},
    {"unknown section",
     "postgresql:\n  host: a\n",
     {"f.yaml:1:1:", "unknown key \"postgresql\""}},
    {"a long key",
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 1\n",
     {"unknown key", "…"}},
    {"section as value", "id: {a: b}\n", {"id takes a single value"}},
    {"value as section", "timing: 5s\n", {"timing is a section"}},
    {"too deep", "postgres:\n  host:\n    name: a\n", {"f.yaml:3:5:", "too deep"}},
    {"complex key", "? {a: b}\n: c\n", {"f.yaml:1:3:", "too deep"}},
    {"twice", "id: a\nid: b\n", {"f.yaml:2:1: id is given a second time", "line 1"}},
    {"section twice",
     "timing: {poll: 1s}\ntiming: {margin: 1s}\n",
     {"f.yaml:2:1: section timing", "line 1"}},
    {"anchor", "id: &x a\n", {"f.yaml:1:5:", "anchors"}},
    {"alias", "id: a\npodUid: *x\n", {"f.yaml:2:9:"}},
    {"alias of an anchor", "podName: &x a\nid: *x\n", {"f.yaml:1:10:", "anchors"}},
    {"merge", "timing: {<<: *x}\n", {"f.yaml:1:14:"}},
    {"tag", "id: !!str a\n", {"f.yaml:1:5:", "tags"}},
    {"two documents", NEEDED "---\nid: b\n", {"f.yaml:3:1:", "second document"}},
    {"resets take longer than the lease",
     NEEDED "recovery: {mode: enforce, resetBeforeStart: 28s}\n",
     {"f.yaml: recovery.resetBeforeStart 28s", "= 30500ms is not below ttl 30s",
      "above 30500ms"}},
    {"a reset takes longer than the hold",
     NEEDED "recovery: {mode: enforce, maxHold: 21s}\n",
     {"recovery.initTimeout 20s + 1s", "maxHold 21s"}},
    {"a node is killed after the hold",
     NEEDED "recovery: {mode: enforce, maxHold: 31s, killNodes: true}\n",
     {"recovery.killAfter 30s + 1s", "maxHold 31s", "kill sooner"}},
    {"a policy that nobody knows",
     NEEDED "recovery: {policy: closed}\n",
     {"f.yaml:3:20: recovery.policy:", "open|hold"}},
    {"bare number",
     NEEDED "timing: {poll: 250}\n",
     {"f.yaml:3:16: timing.poll:", "\"250\"", "unit"}},
    {"not a duration", NEEDED "timing: {poll: soon}\n", {"\"soon\" is not a duration"}},
    {"negative", NEEDED "timing: {poll: -1s}\n", {"\"-1s\" is not a duration"}},
    {"fraction", NEEDED "timing: {poll: 0.5s}\n", {"timing.poll:"}},
    {"too short", NEEDED "timing: {poll: 9ms}\n", {"9ms is out of range: 10ms to 1h"}},
    {"too long", NEEDED "timing: {renewGap: 61s}\n", {"61s is out of range"}},
    {"overflow", NEEDED "timing: {poll: 99999999999999999999s}\n", {"too long a duration"}},
    {"port text", NEEDED "meta: {servicePort: http}\n", {"\"http\" is not a whole number"}},
    {"port 0", NEEDED "meta: {servicePort: 0}\n", {"0 is out of range: 1 to 65535"}},
    {"port 65536", NEEDED "meta: {servicePort: 65536}\n", {"65536 is out of range"}},
    {"huge port", NEEDED "meta: {servicePort: 99999999999999999999999999}\n", {"out of range"}},
    {"hex port", NEEDED "meta: {servicePort: 0x10}\n", {"not a whole number"}},
    {"quoted port",
     NEEDED "meta: {servicePort: '1'}\n",
     {"must be a number: remove the quotes"}},
    {"yes", NEEDED "notify: yes\n", {"\"yes\" is not a boolean: write true or false"}},
    {"quoted true", NEEDED "notify: \"true\"\n", {"must be a boolean: remove the quotes"}},
    {"choice", NEEDED "onSilence: never\n", {"f.yaml:3:12:", "none of auto|fence"}},
    {"choice prefix", NEEDED "logLevel: inf\n", {"none of debug|info|warn|error"}},
    {"relative path",
     NEEDED "fence: {socket: x.sock}\n",
     {"fence.socket: must be an absolute"}},
    {"long path",
     NEEDED "control: {socket: /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n",
     {"control.socket:", "too long: at most 107"}},
    {"table with a quote",
     NEEDED "election: {leaderTable: 'a\"b'}\n",
     {"election.leaderTable: must be a table"}},
    {"table with two dots",
     NEEDED "election: {memberTable: a.b.c}\n",
     {"election.memberTable: must be"}},
    {"table without name",
     NEEDED "election: {memberTable: a.}\n",
     {"election.memberTable: must be"}},
    {"timing does not fit",
     NEEDED "election: {ttl: 13s}\n",
     {"13750ms", "ttl 13s", "2*(connectTimeout 2s + queryTimeout 2s)"}},
    {"timing equals ttl",
     NEEDED "election: {ttl: 5s}\ntiming: {renewGap: 2400ms, poll: 100ms, margin: "
            "300ms, killBudget: 300ms}\n",
     {"ttl 5s"}},
};

static void test_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        struct config config;
        struct err err = {0};

        if (parse(broken[i].text, &config, &err) == 0)
            fail_msg("%s: accepted", broken[i].name);
        assert_int_equal(err.kind, ERR_INVALID);
        for (size_t j = 0; j < 3 && broken[i].want[j]; j++)
            if (!strstr(err.msg, broken[i].want[j]))
                fail_msg("%s: \"%s\" lacks \"%s\"", broken[i].name, err.msg, broken[i].want[j]);
        // What is used of a broken file is there in any case.
        assert_int_equal(config.fence_socket[0], '/');
        assert_int_equal(config.control_socket[0], '/');
    }
}

static void test_good(void **state)
{
    struct config config;
    struct err err = {0};
    const char *text =
        "# comment\n"
        "id: 'm0.meta:5690'\n"
        "onSilence: fence\n"
        "notify: false\n"
        "postgres:\n"
        "  host: \"::1\"\n"
        "  port: 5433\n"
        "  database: 5\n"
        "  user: rw\n"
        "  connectTimeout: 200ms\n"
        "  queryTimeout: 200ms\n"
        "election: {ttl: 5s}\n"
        "timing: {poll: 100ms, renewGap: 1500ms, margin: 300ms, killBudget: 300ms}\n";

    (void)state;
    if (parse(text, &config, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(config.core.id, "m0.meta:5690");
    assert_int_equal(config.core.on_silence, ON_SILENCE_FENCE);
    assert_false(config.notify);
    assert_string_equal(config.postgres.host, "::1");
    assert_int_equal(config.postgres.port, 5433);
    assert_string_equal(config.postgres.database, "5");
    assert_int_equal(config.core.ttl_ns, 5 * NS_PER_SEC);
    assert_int_equal(config.core.poll_ns, 100 * NS_PER_MS);
    assert_string_equal(config.election.leader_table, "election_leader");
    assert_string_equal(config.log_level, "info");
}

static const char *fake_environment(const char *name, void *arg)
{
    const char *const *pairs = arg;

    for (; pairs[0]; pairs += 2)
        if (strcmp(pairs[0], name) == 0)
            return pairs[1];
    return NULL;
}

static void test_environment(void **state)
{
    const char *pairs[] = {"METAFENCE_ID", "from-env:1", "POD_UID", "", NULL};
    const char *bad[] = {"METAFENCE_ID", "a b", NULL};
    const char *text = NEEDED "podUid: u1\n";
    struct config_input input = {"f.yaml", text, strlen(text), fake_environment, pairs};
    struct config config;
    struct err err = {0};
    struct buf shown = {0};

    (void)state;
    assert_int_equal(config_parse(&input, &config, &err), 0);
    assert_string_equal(config.core.id, "from-env:1");
    assert_string_equal(config.pod_uid, "u1"); // an empty variable is none
    config_show_yaml(&config, true, &shown);
    assert_non_null(strstr(buf_str(&shown), "id: \"from-env:1\" # environment METAFENCE_ID"));
    assert_non_null(strstr(buf_str(&shown), "podUid: \"u1\" # file, line 3"));
    assert_non_null(strstr(buf_str(&shown), "  poll: 250ms # default"));
    assert_non_null(strstr(buf_str(&shown), "# password: environment PGPASSWORD"));
    buf_done(&shown);
    input.getenv_arg = bad;
    assert_int_equal(config_parse(&input, &config, &err), -1);
    assert_non_null(
        strstr(err.msg, "environment variable METAFENCE_ID (id): must not contain"));
}

// What a pod's own annotations say, and what of place and fix a refusal must hold.
static struct {
    const char *name;
    const char *pairs[7]; // of the environment
    const char *want[3];  // of the refusal; none: accepted
} overrides[] = {
    {"all of them",
     {"METAFENCE_LOG_LEVEL", "debug", "METAFENCE_POLL", "1s", "METAFENCE_QUERY_TIMEOUT", "3s"},
     {0}},
    {"an empty one is none", {"METAFENCE_POLL", "", "METAFENCE_LOG_LEVEL", "debug"}, {0}},
    {"no unit",
     {"METAFENCE_LOG_LEVEL", "debug", "METAFENCE_POLL", "250"},
     {"annotation metafence.io/poll (timing.poll", "METAFENCE_POLL", "\"250\""}},
    {"none of the choices",
     {"METAFENCE_LOG_LEVEL", "loud"},
     {"annotation metafence.io/log-level (logLevel", "debug|info|warn|error"}},
    {"out of range",
     {"METAFENCE_CONNECT_TIMEOUT", "61s"},
     {"annotation metafence.io/connect-timeout", "61s is out of range"}},
    {"the last below the lease", {"METAFENCE_QUERY_TIMEOUT", "10124ms"}, {0}},
    {"as long as the lease",
     {"METAFENCE_LOG_LEVEL", "debug", "METAFENCE_QUERY_TIMEOUT", "10125ms"},
     {"annotations of the pod: timing", "queryTimeout 10125ms", "is not below ttl 30s"}},
};

static void check_override(size_t i)
{
    const char *text = NEEDED "logLevel: warn\n";
    struct config_input input = {"f.yaml", text, strlen(text), fake_environment,
                                 overrides[i].pairs};
    bool is_refused = overrides[i].want[0] != NULL;
    struct config config;
    struct err err = {0};

    // The file holds whatever the pod says.
    assert_int_equal(config_parse(&input, &config, &err), 0);
    for (size_t j = 0; j < 3 && overrides[i].want[j]; j++)
        if (!strstr(config.override_error, overrides[i].want[j]))
            fail_msg("%s: \"%s\" lacks \"%s\"", overrides[i].name, config.override_error,
                     overrides[i].want[j]);
    assert_int_equal(config.override_error[0] != '\0', is_refused);
    assert_int_equal(config_override_count(&config) > 0, !is_refused);
    if (is_refused) { // none of them holds
        assert_string_equal(config.log_level, "warn");
        assert_true(config.core.poll_ns == 250 * NS_PER_MS);
        assert_true(config.core.query_timeout_ns == 2 * NS_PER_SEC);
    }
}

static void test_overrides(void **state)
{
    const char *poll[] = {"METAFENCE_POLL", "1s", NULL};
    struct config_input input = {"f.yaml", NEEDED, strlen(NEEDED), fake_environment, poll};
    struct config config;
    struct err err = {0};
    struct buf shown = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(overrides) / sizeof(overrides[0]); i++)
        check_override(i);
    assert_int_equal(config_parse(&input, &config, &err), 0);
    config_show_yaml(&config, false, &shown);
    assert_non_null(strstr(buf_str(&shown), "  poll: 1s # environment METAFENCE_POLL, "
                                            "annotation metafence.io/poll"));
    buf_done(&shown);
    assert_true(config_is_annotation("metafence.io/poll"));
    assert_false(config_is_annotation("metafence.io/id"));
    assert_false(config_is_annotation("metafence.io/"));
    // A file that is broken is not made good by the pod.
    input.bytes = "id: m0:5690\n";
    input.len = strlen(input.bytes);
    assert_int_equal(config_parse(&input, &config, &err), -1);
    assert_int_equal(config_override_count(&config), 0);
}

// What is shown is a configuration again, with the same values.
static void test_show_round_trip(void **state)
{
    struct config first;
    struct config second;
    struct err err = {0};
    struct buf shown = {0};
    struct buf again = {0};

    (void)state;
    assert_int_equal(
        parse("id: \"a\\\"\\\\ü:1\"\npostgres: {host: db, database: 'x #y', user: rw}\n"
              "onSilence: fence\npodUid: u\npodName: n\n",
              &first, &err),
        0);
    config_show_yaml(&first, false, &shown);
    // Optional texts that are empty can't be told from required ones in YAML: take them out.
    if (parse(buf_str(&shown), &second, &err) != 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(&first, &second, offsetof(struct config, origin));
    config_show_json(&second, false, &again);
    assert_non_null(strstr(buf_str(&again), "\"postgres.database\":{\"value\":\"x #y\""));
    buf_done(&shown);
    buf_done(&again);
}

// Cuts and single-byte changes of a good file, and nests: a verdict each, never a crash.
static void test_mutations(void **state)
{
    static const char good[] = NEEDED "timing: {poll: 250ms, margin: 2s}\nnotify: true\n";
    char text[sizeof(good)];
    char deep[2000];
    struct config config;
    struct err err = {0};
    size_t refused = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        struct config_input input = {.name = "f", .bytes = good, .len = i};

        refused += config_parse(&input, &config, &err) != 0;
        for (int byte = 0; byte < 256; byte += 3) {
            memcpy(text, good, sizeof(good));
            text[i] = (char)byte;
            input = (struct config_input){.name = "f", .bytes = text, .len = sizeof(text) - 1};
            refused += config_parse(&input, &config, &err) != 0;
        }
    }
    assert_true(refused > sizeof(good));
    for (size_t i = 0; i < sizeof(deep); i++)
        deep[i] = "[{"[i % 2];
    assert_int_equal(
        config_parse(&(struct config_input){.name = "f", .bytes = deep, .len = sizeof(deep)},
                     &config, &err),
        -1);
    assert_int_equal(
        config_parse(
            &(struct config_input){.name = "f", .bytes = "", .len = CONFIG_FILE_MAX + 1},
            &config, &err),
        -1);
    assert_non_null(strstr(err.msg, "too large"));
}

static void test_files(void **state)
{
    char dir[] = "/tmp/metafence-test-config-XXXXXX";
    char path[80];
    struct config config;
    struct err err = {0};
    int fd = -1;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(config_load(dir, &config, &err), -1);
    assert_non_null(strstr(err.msg, "not a regular file"));
    (void)snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(config_load(path, &config, &err), -1); // does not hang
    assert_non_null(strstr(err.msg, "not a regular file"));
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/none", dir);
    // Without this meta's container would have no metafence-run to start.
    assert_int_equal(setenv("METAFENCE_RUN", "/shared/metafence-run", 1), 0);
    assert_int_equal(setenv("METAFENCE_HTTP_PORT", "9700", 1), 0);
    assert_int_equal(config_load(path, &config, &err), -1);
    assert_non_null(strstr(err.msg, "No such file"));
    assert_string_equal(config.metafence_run, "/shared/metafence-run");
    assert_int_equal(config.http_port, 9700);
    assert_int_equal(unsetenv("METAFENCE_RUN"), 0);
    assert_int_equal(unsetenv("METAFENCE_HTTP_PORT"), 0);
    fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, NEEDED, sizeof(NEEDED) - 1), sizeof(NEEDED) - 1);
    close(fd);
    assert_int_equal(config_load(path, &config, &err), 0);
    assert_int_equal(truncate(path, CONFIG_FILE_MAX + 1), 0);
    assert_int_equal(config_load(path, &config, &err), -1);
    assert_non_null(strstr(err.msg, "too large"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_broken),      cmocka_unit_test(test_good),
    cmocka_unit_test(test_environment), cmocka_unit_test(test_overrides),
    cmocka_unit_test(test_mutations),   cmocka_unit_test(test_show_round_trip),
    cmocka_unit_test(test_files),
};

UNIT_MAIN(tests)
