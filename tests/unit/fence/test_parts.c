// SPDX-License-Identifier: Apache-2.0
// The smaller parts of metafence-run: /proc/PID/stat, state file, probe, options, log lines.
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/log.h"
#include "fence/options.h"
#include "fence/probe.h"
#include "fence/proc.h"
#include "fence/state.h"
#include "tests/unit/fence/shim_fixture.h"

static const struct {
    const char *text;
    bool is_good;
    pid_t parent;
    char process_state;
    uint64_t start_ticks;
} stats[] = {
    {"42 (meta) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2", true, 7, 'S',
     987654},
    {"42 (a) b) (c ) Z 1 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 5", true, 1, 'Z', 5},
    {"42 (meta) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0", false, 0, 0, 0},
    {"42 (meta S 7 42", false, 0, 0, 0},
    {"42 (meta)", false, 0, 0, 0},
    {"42 (meta) ", false, 0, 0, 0},
    {"42 (meta) S x 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5", false, 0, 0, 0},
    {"", false, 0, 0, 0},
    {"\xff\xfe)", false, 0, 0, 0},
};

static void test_proc_stat(void **state)
{
    struct proc_stat own = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(stats) / sizeof(stats[0]); i++) {
        struct proc_stat stat = {0};
        bool is_good = proc_stat_parse(stats[i].text, &stat);

        if (is_good != stats[i].is_good || stat.parent != stats[i].parent ||
            stat.state != stats[i].process_state || stat.start_ticks != stats[i].start_ticks)
            fail_msg("\"%s\": %d", stats[i].text, is_good);
    }
    assert_true(proc_stat_read(getpid(), &own));
    assert_int_equal(own.parent, getppid());
    assert_int_equal(own.state, 'R');
}

// ---- state file

static char path[] = "/tmp/metafence-state-XXXXXX";

static int make_path(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void test_state_file(void **state)
{
    struct fence_status written = {.incarnation = 9, .tag = TAG_OWN, .flags = SHIM_MANUAL};
    struct fence_status back = {0};
    struct err err = {0};
    bool has_left = true;
    int fd = -1;
    int second = -1;

    (void)state;
    assert_int_equal(state_open(path, &fd, &back, &has_left, &err), 0);
    assert_false(has_left);
    assert_int_equal(state_open(path, &second, &back, &has_left, &err), -1);
    assert_int_equal(err.kind, ERR_CONFLICT);
    assert_non_null(strstr(err.msg, "another metafence-run guards this meta"));
    fence_status_seal(&written);
    assert_int_equal(state_write(fd, &written, &err), 0);
    assert_int_equal(state_read(path, &back, &err), 0);
    assert_memory_equal(&back, &written, sizeof(back));
    close(fd);
    assert_int_equal(state_open(path, &fd, &back, &has_left, &err), 0);
    assert_true(has_left);
    assert_int_equal(back.incarnation, 9);
    close(fd);
}

// Truncated at every size, and too long: no status, and the next one to open starts over.
static void test_broken_state_files(void **state)
{
    struct fence_status written = {.incarnation = 9};
    char bytes[sizeof(written) + 100] = {0};

    (void)state;
    fence_status_seal(&written);
    memcpy(bytes, &written, sizeof(written));
    for (size_t size = 0; size <= sizeof(bytes); size += size == 0 ? 1 : 51) {
        struct fence_status back = {0};
        struct err err = {0};
        struct stat stat = {0};
        bool has_left = true;
        int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

        assert_int_equal(write(fd, bytes, size), size);
        close(fd);
        if (size == sizeof(written))
            continue;
        assert_int_equal(state_read(path, &back, &err), -1);
        assert_int_equal(err.kind, ERR_INVALID);
        assert_int_equal(state_open(path, &fd, &back, &has_left, &err), 0);
        assert_false(has_left);
        assert_int_equal(fstat(fd, &stat), 0);
        assert_int_equal(stat.st_size, 0);
        close(fd);
    }
}

static void test_no_state_file(void **state)
{
    struct fence_status back = {0};
    struct err err = {0};
    bool has_left = false;
    int fd = -1;

    (void)state;
    assert_int_equal(state_read("/no/such/state", &back, &err), -1);
    assert_non_null(strstr(err.msg, "/no/such/state: ENOENT"));
    assert_int_equal(state_open("/no/such/state", &fd, &back, &has_left, &err), -1);
    assert_int_equal(err.kind, ERR_DENIED);
    assert_non_null(strstr(err.msg, "--state /no/such/state: ENOENT"));
}

// ---- probe

#define BOOT "boot"

static const struct {
    const char *name;
    struct fence_status status;
    bool lives; // startup and liveness alike
    bool is_ready;
} probes[] = {
    {"held", {.boot_id = BOOT, .state = SHIM_HOLDING, .hold = SHIM_HOLD_MANUAL}, true, false},
    {"starting", {.boot_id = BOOT, .state = SHIM_RUNNING, .flags = SHIM_ALIVE}, true, false},
    {"follower",
     {.boot_id = BOOT, .state = SHIM_RUNNING, .flags = SHIM_ALIVE, .ports = SHIM_PORT_SERVICE},
     true,
     true},
    {"promoting",
     {.boot_id = BOOT,
      .state = SHIM_RUNNING,
      .flags = SHIM_ALIVE | SHIM_ENGAGED,
      .deadline_ns = S(100) + 1},
     true,
     true},
    {"at the deadline",
     {.boot_id = BOOT,
      .state = SHIM_RUNNING,
      .flags = SHIM_ALIVE | SHIM_ENGAGED,
      .deadline_ns = S(100)},
     false,
     false},
    {"past the deadline",
     {.boot_id = BOOT,
      .state = SHIM_RUNNING,
      .flags = SHIM_ALIVE | SHIM_ENGAGED,
      .deadline_ns = S(100) - 1},
     false,
     false},
    {"past the deadline and dead",
     {.boot_id = BOOT, .state = SHIM_HOLDING, .flags = SHIM_ENGAGED, .deadline_ns = S(1)},
     true,
     false},
    {"killing within its budget",
     {.boot_id = BOOT,
      .state = SHIM_KILLING,
      .flags = SHIM_ALIVE,
      .ports = SHIM_PORT_SERVICE,
      .deadline_ns = S(100) + 1},
     true,
     false},
    {"cannot be killed",
     {.boot_id = BOOT,
      .state = SHIM_KILLING,
      .flags = SHIM_ALIVE,
      .ports = SHIM_PORT_SERVICE,
      .deadline_ns = S(99)},
     false,
     false},
    {"terminating",
     {.boot_id = BOOT, .state = SHIM_TERMINATING, .flags = SHIM_ALIVE},
     true,
     false},
    {"held alive after the agent was lost",
     {.boot_id = BOOT,
      .state = SHIM_RUNNING,
      .flags = SHIM_ALIVE | SHIM_ENGAGED | SHIM_SILENCE_HELD},
     true,
     true},
    {"of an earlier boot",
     {.boot_id = "other",
      .state = SHIM_RUNNING,
      .flags = SHIM_ALIVE,
      .ports = SHIM_PORT_SERVICE},
     false,
     false},
};

static void test_probes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        for (int kind = PROBE_STARTUP; kind <= PROBE_READINESS; kind++) {
            bool wanted = kind == PROBE_READINESS ? probes[i].is_ready : probes[i].lives;
            const char *why = NULL;
            bool passes =
                probe_judge((enum probe_kind)kind, &probes[i].status, BOOT, AT(S(100)), &why);

            if (passes != wanted)
                fail_msg("%s: probe %d says %d: %s", probes[i].name, kind, passes, why);
            assert_non_null(why);
        }
    }
}

// ---- options

// Cuts text at its blanks. Returns the number of words.
static int split(char *text, char *argv[16])
{
    int argc = 0;

    for (char *p = text; p && argc < 15; argc++) {
        argv[argc] = p;
        p = strchr(p, ' ');
        if (p)
            *p++ = '\0';
    }
    argv[argc] = NULL;
    return argc;
}

static void test_options(void **state)
{
    char full_line[] = "metafence-run --socket=/run/s --state /run/state --pod-uid=12345678 "
                       "--ttl 15s --peer-uid=65532 --restart=container --require-agent "
                       "--max-kills=0 -- risingwave --ttl=bad";
    char bare_line[] = "metafence-run --socket=s --state=t --pod-uid=12345678 -- x";
    char *argv[16];
    char *bare[16];
    int count = split(full_line, argv);
    struct options options = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(options_parse(count, argv, 7, &options, &err), 0);
    assert_int_equal(options.command, OPTIONS_RUN);
    assert_string_equal(options.socket_path, "/run/s");
    assert_string_equal(options.state_path, "/run/state");
    assert_int_equal(options.shim.ttl_ns, S(15));
    assert_int_equal(options.shim.agent_silence_ns, S(5));
    assert_int_equal(options.peer_uid, 65532);
    assert_int_equal(options.shim.restart, SHIM_RESTART_CONTAINER);
    assert_true(options.shim.require_agent);
    assert_int_equal(options.shim.max_kills, 0);
    assert_string_equal(options.argv[0], "risingwave");
    assert_string_equal(options.argv[1], "--ttl=bad");
    assert_null(options.argv[2]);
    assert_int_equal(options_parse(split(bare_line, bare), bare, 7, &options, &err), 0);
    assert_int_equal(options.peer_uid, 7);
    assert_int_equal(options.shim.ttl_ns, S(30));
    assert_int_equal(options.shim.margin_ns, S(2));
    assert_int_equal(options.shim.kill_budget_ns, NS_PER_SEC / 2);
    assert_int_equal(options.ports.service, 5690);
    assert_int_equal(options.shim.when_agent_lost, SHIM_AGENT_LOST_FENCE);
    // Each cut of a good command line is refused with a message, none crashes.
    for (int argc = 2; argc < count - 1; argc++) {
        char *cut[16] = {0};
        memcpy(cut, argv, sizeof(*argv) * (size_t)argc);
        err.msg[0] = '\0';
        assert_int_equal(options_parse(argc, cut, 7, &options, &err), -1);
        assert_int_not_equal(err.msg[0], '\0');
    }
}

static void test_log_quote(void **state)
{
    char buf[16];

    (void)state;
    assert_string_equal(fence_log_quote("a\"b\\c\n", buf, sizeof(buf)), "\"a\\\"b\\\\c\\x0a\"");
    assert_string_equal(fence_log_quote("0123456789abcdef", buf, sizeof(buf)), "\"012345678\"");
    assert_string_equal(fence_log_quote("", buf, sizeof(buf)), "\"\"");
}

// To a pipe: no line is cut in two, and one that finds no room is counted and told later.
static void test_log_to_a_pipe(void **state)
{
    static char text[1 << 20];
    char longest[5000];
    int ends[2];
    int before = dup(STDERR_FILENO);
    ssize_t n = 0;
    ssize_t whole = 0;

    (void)state;
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    fence_log_init();
    fence_log(FENCE_LOG_INFO, "long", "a=%s", longest);
    n = read(ends[0], text, sizeof(text));
    whole = n;
    assert_true(n > 2000 && n <= 2048);
    assert_int_equal(text[n - 1], '\n');
    assert_non_null(strstr(text, "level=info msg=\"long\" a=xxx"));
    for (int i = 0; i < 100; i++) // more than it holds
        fence_log(FENCE_LOG_WARN, "many", "a=%s", longest);
    n = read(ends[0], text, sizeof(text) - 1);
    assert_true(n > 0 && n % whole == 0);
    fence_log(FENCE_LOG_ERROR, "last", "i=%d", 1);
    n = read(ends[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "level=error msg=\"last\" dropped="));
    assert_non_null(strstr(text, " i=1\n"));
    fence_log(FENCE_LOG_INFO, "after", "i=%d", 2);
    n = read(ends[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    assert_null(strstr(text, "dropped="));
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    (void)close(before);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_proc_stat),
    cmocka_unit_test(test_state_file),
    cmocka_unit_test(test_broken_state_files),
    cmocka_unit_test(test_no_state_file),
    cmocka_unit_test(test_probes),
    cmocka_unit_test(test_options),
    cmocka_unit_test(test_log_quote),
    cmocka_unit_test(test_log_to_a_pipe),
};

int main(void)
{
    cmocka_set_test_filter(getenv("METAFENCE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
