// SPDX-License-Identifier: Apache-2.0
// Who is meta, who belongs to it, and that nobody else is hit.
#include "tests/unit/agent/procfs.h"
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/pidfd.h"

#define META  PROCFS_META_NS
#define OTHER 8
#define OURS  PROCFS_SELF_NS
#define SELF  (-1) // stands for our own pid
#define US    1000
#define ROOT  0

struct find_case {
    const char *name;
    struct procfs_process processes[4];
    int pid;       // that is found; 0: none
    int ambiguous; // pid
    bool is_mount_unknown;
};

// clang-format off
static const struct find_case find_cases[] = {
    {"nothing", {{0}}, 0, 0, false},
    {"meta", {{50, 1, 9, US, META, 0, "/risingwave/bin/risingwave meta-node --x", NULL}}, 50, 0, false},
    {"last argument", {{50, 1, 9, US, META, 0, "rw meta-node", NULL}}, 50, 0, false},
    {"a program of that name", {{50, 1, 9, US, META, 0, "meta-node --x", NULL}}, 0, 0, false},
    {"part of an argument", {{50, 1, 9, US, META, 0, "rw --meta-node meta-nodes", NULL}}, 0, 0, false},
    {"no arguments", {{50, 1, 9, US, META, 0, "", NULL}}, 0, 0, false},
    {"in our container", {{50, 1, 9, US, OURS, 0, "rw meta-node", NULL}}, 0, 0, false},
    {"our child", {{50, SELF, 9, US, META, 0, "rw meta-node", NULL}}, 0, 0, false},
    {"our grandchild", {{50, 49, 9, US, META, 0, "rw meta-node", NULL}, {49, SELF, 8, US, OURS, 0, "sh", NULL}}, 0, 0, false},
    {"zombie", {{50, 1, 9, US, META, 'Z', "rw meta-node", NULL}}, 0, 0, false},
    {"stopped", {{50, 1, 9, US, META, 'T', "rw meta-node", NULL}}, 50, 0, false},
    {"wrapper and child", {{60, 50, 19, US, META, 0, "rw meta-node", NULL}, {50, 1, 9, US, META, 0, "sh run meta-node", NULL}}, 50, 0, false},
    {"born in one tick", {{51, 50, 9, US, META, 0, "rw meta-node", NULL}, {50, 1, 9, US, META, 0, "sh run meta-node", NULL}}, 50, 0, false},
    {"two containers", {{50, 1, 9, US, META, 0, "rw meta-node", NULL}, {60, 1, 19, US, OTHER, 0, "rw meta-node --help", NULL}}, -50, -60, false},
    {"another user's", {{50, 1, 9, ROOT, PROCFS_HIDDEN, 0, "rw meta-node", NULL}}, 50, 0, true},
    {"ours goes first", {{50, 1, 9, ROOT, PROCFS_HIDDEN, 0, "rw meta-node", NULL}, {60, 1, 19, US, META, 0, "rw meta-node", NULL}}, 60, 0, false},
    {"hidden namespace", {{50, 1, 9, US, PROCFS_HIDDEN, 0, "rw meta-node", NULL}}, 50, 0, true},
    {"hidden family", {{50, 1, 9, US, PROCFS_HIDDEN, 0, "sh run meta-node", NULL}, {60, 50, 19, US, PROCFS_HIDDEN, 0, "rw meta-node", NULL}}, 50, 0, true},
    {"hidden strangers", {{50, 1, 9, US, PROCFS_HIDDEN, 0, "rw meta-node", NULL}, {60, 1, 19, US, PROCFS_HIDDEN, 0, "rw meta-node", NULL}}, -50, -60, true},
};
// clang-format on

static void put_case(const struct procfs *procfs, const struct find_case *test)
{
    for (size_t i = 0; i < 4 && test->processes[i].pid; i++) {
        struct procfs_process process = test->processes[i];

        if (process.parent == SELF)
            process.parent = getpid();
        procfs_put(procfs, &process);
    }
}

static void test_find(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(find_cases) / sizeof(find_cases[0]); i++) {
        const struct find_case *test = &find_cases[i];
        struct procfs procfs;
        struct pidfd_view view;
        struct pidfd_search found;
        struct err err = {0};
        bool is_right = false;

        procfs_make(&procfs);
        put_case(&procfs, test);
        pidfd_view_init(&view, procfs.root);
        view.uid = US;
        assert_true(view.mount_ns == OURS);
        assert_int_equal(pidfd_find(&view, "meta-node", &found, &err), 0);
        // Which of two strangers is which depends on the folder's order.
        if (test->pid < 0)
            is_right = found.process.pid + found.ambiguous.pid == 110 && found.ambiguous.pid;
        else
            is_right = found.process.pid == test->pid && found.ambiguous.pid == test->ambiguous;
        if (!is_right || found.is_mount_unknown != test->is_mount_unknown)
            fail_msg("%s: %d, ambiguous %d", test->name, found.process.pid,
                     found.ambiguous.pid);
        procfs_remove(&procfs);
    }
}

static void test_find_needs_proc(void **state)
{
    struct pidfd_view view = {.root = "/nowhere/at/all"};
    struct pidfd_search found;
    struct err err = {0};

    (void)state;
    assert_int_equal(pidfd_find(&view, "meta-node", &found, &err), -1);
    assert_non_null(strstr(err.msg, "/nowhere/at/all"));
}

static void test_tag(void **state)
{
    static const struct {
        const char *environment;
        const char *tag;
    } cases[] = {
        {"A=1 PGAPPNAME=metafence:aaaaaaaa:01 B=2", "metafence:aaaaaaaa:01"},
        {"PGAPPNAME=psql", ""},
        {"XPGAPPNAME=metafence:a:b", ""},
        {"A=PGAPPNAME=metafence:a:b", ""},
        {"", ""},
        {NULL, ""},
    };
    struct procfs procfs;
    struct pidfd_view view;
    char tag[FENCE_TAG_SIZE];

    (void)state;
    procfs_make(&procfs);
    pidfd_view_init(&view, procfs.root);
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++) {
        const struct procfs_process process = {
            500 + i, 1, 9, US, META, 0, "rw meta-node", cases[i].environment};

        procfs_put(&procfs, &process);
        pidfd_read_tag(&view, process.pid, tag);
        assert_string_equal(tag, cases[i].tag);
    }
    procfs_remove(&procfs);
}

// What is no stat is no process.
static void test_garbage(void **state)
{
    static const char *const texts[] = {"",
                                        "50",
                                        "50 (x",
                                        "50 (x)",
                                        "50 (x) S",
                                        "50 (x) S 1 2 3",
                                        "50 (x) S a b c d e f g h i j k l"};
    struct procfs procfs;
    struct pidfd_view view;
    struct pidfd_process process;
    char path[128];

    (void)state;
    procfs_make(&procfs);
    pidfd_view_init(&view, procfs.root);
    procfs_put(&procfs, &(struct procfs_process){50, 1, 9, US, META, 0, "rw", NULL});
    assert_true(pidfd_read_process(&view, 50, &process));
    assert_true(process.start_ticks == 9 && process.parent == 1 && process.uid == US &&
                process.mount_ns == META && process.state == 'S');
    (void)snprintf(path, sizeof(path), "%s/50/stat", procfs.root);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        FILE *file = fopen(path, "we");

        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_false(pidfd_read_process(&view, 50, &process));
    }
    procfs_remove(&procfs);
}

// Real children shown in a /proc of ours, so that they can be in any container.
struct family {
    struct procfs procfs;
    struct pidfd_view view;
    pid_t pids[3];
    uint64_t starts[3];
};

static void make_family(struct family *family, const unsigned mount_ns[3])
{
    procfs_make(&family->procfs);
    pidfd_view_init(&family->view, family->procfs.root);
    for (int i = 0; i < 3; i++) {
        family->pids[i] = procfs_spawn(&family->starts[i]);
        procfs_put(&family->procfs,
                   &(struct procfs_process){family->pids[i], 1, family->starts[i], getuid(),
                                            mount_ns[i], 0, "rw meta-node", NULL});
    }
}

static void end_family(struct family *family)
{
    for (int i = 0; i < 3; i++) {
        (void)kill(family->pids[i], SIGKILL);
        (void)waitpid(family->pids[i], NULL, 0);
    }
    procfs_remove(&family->procfs);
}

static int open_first(struct family *family, struct pidfd_group *group, struct err *err)
{
    struct pidfd_process leader;

    assert_true(pidfd_read_process(&family->view, family->pids[0], &leader));
    return pidfd_group_open(group, &family->view, &leader, err);
}

static bool lives(pid_t pid)
{
    siginfo_t info = {0};

    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == 0;
}

// All in its mount namespace, also who is stopped; nobody in another one. Zombies count as
// dead.
static void test_container_dies(void **state)
{
    static const unsigned mount_ns[3] = {META, META, OTHER};
    static struct pidfd_group group;
    struct family family;
    struct err err = {0};

    (void)state;
    make_family(&family, mount_ns);
    assert_int_equal(kill(family.pids[1], SIGSTOP), 0);
    assert_int_equal(open_first(&family, &group, &err), 0);
    assert_int_equal(pidfd_group_may_kill(&group, &err), 0);
    assert_true(pidfd_group_leader_lives(&group));
    assert_false(pidfd_group_look(&group));
    assert_true(pidfd_group_watch_fd(&group) >= 0);
    while (!pidfd_group_look(&group))
        assert_int_equal(pidfd_group_kill(&group, &err), 0);
    assert_false(lives(family.pids[0]));
    assert_false(lives(family.pids[1])); // not reaped: still a zombie
    assert_true(lives(family.pids[2]));
    assert_false(pidfd_group_leader_lives(&group));
    assert_int_equal(pidfd_group_watch_fd(&group), -1);
    pidfd_group_close(&group);
    end_family(&family);
}

// The wrapper has ended by itself: the container is not dead before its last process.
static void test_container_outlives_its_leader(void **state)
{
    static const unsigned mount_ns[3] = {META, META, META};
    static struct pidfd_group group;
    struct family family;
    struct err err = {0};

    (void)state;
    make_family(&family, mount_ns);
    assert_int_equal(open_first(&family, &group, &err), 0);
    assert_int_equal(kill(family.pids[0], SIGKILL), 0);
    while (pidfd_group_leader_lives(&group))
        ;
    procfs_drop(&family.procfs, family.pids[0]);
    assert_false(pidfd_group_look(&group));
    group.spared = family.pids[2];
    while (!pidfd_group_look(&group))
        assert_int_equal(pidfd_group_kill(&group, &err), 0);
    assert_false(lives(family.pids[1]));
    pidfd_group_close(&group);
    end_family(&family);
}

// Where containers can't be told apart: by descent, and by the tag of an incarnation.
static void test_family_dies(void **state)
{
    static const unsigned mount_ns[3] = {PROCFS_HIDDEN, PROCFS_HIDDEN, PROCFS_HIDDEN};
    static struct pidfd_group group;
    struct family family;
    struct err err = {0};

    (void)state;
    make_family(&family, mount_ns);
    procfs_put(&family.procfs,
               &(struct procfs_process){family.pids[1], family.pids[0], family.starts[1],
                                        getuid(), PROCFS_HIDDEN, 0, "child", NULL});
    assert_int_equal(open_first(&family, &group, &err), 0);
    while (!pidfd_group_look(&group))
        assert_int_equal(pidfd_group_kill(&group, &err), 0);
    assert_false(lives(family.pids[0]));
    assert_false(lives(family.pids[1]));
    assert_true(lives(family.pids[2]));

    procfs_put(&family.procfs, &(struct procfs_process){family.pids[2], 1, family.starts[2],
                                                        getuid(), PROCFS_HIDDEN, 0, "child",
                                                        "A=1 PGAPPNAME=metafence:a:1"});
    (void)snprintf(group.tag, sizeof(group.tag), "metafence:a:2");
    assert_true(pidfd_group_look(&group));
    (void)snprintf(group.tag, sizeof(group.tag), "metafence:a:1");
    while (!pidfd_group_look(&group))
        assert_int_equal(pidfd_group_kill(&group, &err), 0);
    assert_false(lives(family.pids[2]));
    pidfd_group_close(&group);
    end_family(&family);
}

// The number now belongs to somebody else: not opened, not hit.
static void test_reused_pid(void **state)
{
    static const unsigned mount_ns[3] = {META, META, META};
    static struct pidfd_group group;
    struct family family;
    struct pidfd_process leader;
    struct err err = {0};

    (void)state;
    make_family(&family, mount_ns);
    assert_true(pidfd_read_process(&family.view, family.pids[0], &leader));
    leader.start_ticks--;
    assert_int_equal(pidfd_group_open(&group, &family.view, &leader, &err), -1);
    assert_int_equal(err.code, ESRCH);
    assert_int_equal(group.count, 0);
    pidfd_group_close(&group);
    assert_true(lives(family.pids[0]));
    leader.pid = 0x3fffffff;
    assert_int_equal(pidfd_group_open(&group, &family.view, &leader, &err), -1);
    assert_int_equal(err.code, ESRCH);
    end_family(&family);
}

// 0: denied as it must be.
static int try_as_nobody(struct family *family)
{
    static struct pidfd_group group;
    struct err err = {0};

    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 1;
    if (open_first(family, &group, &err) < 0 || pidfd_group_may_kill(&group, &err) == 0 ||
        err.kind != ERR_DENIED || err.code != EPERM)
        return 2;
    return pidfd_group_kill(&group, &err) == -1 && err.code == EPERM ? 0 : 3;
}

static void test_another_user_is_denied(void **state)
{
    static const unsigned mount_ns[3] = {META, META, META};
    struct family family;
    char root[80];
    int status = 0;
    pid_t child = 0;

    (void)state;
    if (getuid() != 0)
        skip();
    make_family(&family, mount_ns);
    (void)snprintf(root, sizeof(root), "chmod -R a+rX %s", family.procfs.root);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)execl("/bin/sh", "sh", "-c", root, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(try_as_nobody(&family));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 3; i++)
        assert_true(lives(family.pids[i]));
    end_family(&family);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_find),
    cmocka_unit_test(test_find_needs_proc),
    cmocka_unit_test(test_tag),
    cmocka_unit_test(test_garbage),
    cmocka_unit_test(test_container_dies),
    cmocka_unit_test(test_container_outlives_its_leader),
    cmocka_unit_test(test_family_dies),
    cmocka_unit_test(test_reused_pid),
    cmocka_unit_test(test_another_user_is_denied),
};

UNIT_MAIN(tests)
