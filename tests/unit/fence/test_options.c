// SPDX-License-Identifier: Apache-2.0
// What metafence-run's command line refuses, and what its messages call things.
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "fence/options.h"
#include "fence/proto.h"

#define WORDS_MAX 24

// Each with what a good command line has before and behind it.
static const struct {
    const char *words[4];
    const char *says; // NULL: taken
} cases[] = {
    {{"--ttl", "40s"}, NULL},
    {{"--when-agent-lost", "hold"}, NULL},
    {{"--when-agent-lost=fence"}, NULL},
    {{"--restart=in-place"}, NULL},
    {{"--host-id=meta-0:5690"}, NULL},
    {{"--ttl", "soon"}, "--ttl: "},
    {{"--ttl"}, "--ttl needs a value"},
    {{"--max-kills", "-1"}, "--max-kills \"-1\" is not a whole number from 0 to 4294967295"},
    {{"--max-kills", "1x"}, "is not a whole number"},
    {{"--max-kills", "4294967296"}, "is not a whole number"},
    {{"--max-kills="}, "is not a whole number"},
    {{"--peer-uid", "4294967295"}, "from 0 to 4294967294"},
    {{"--service-port", "0"}, "--service-port is 0"},
    {{"--service-port", "65536"}, "from 0 to 65535"},
    {{"--service-port", "x"}, "is not a whole number"},
    {{"--service-port=1250"}, "must differ"},
    {{"--dashboard-port=1250"}, "must differ"},
    {{"--dashboard-port=5690"}, "must differ"},
    {{"--restart", "never"}, "--restart \"never\" is neither in-place nor container"},
    {{"--when-agent-lost", "never"}, "is neither fence nor hold"},
    {{"--require-agent=yes"}, "--require-agent takes no value"},
    {{"--require-agent", "--require-agent"}, "--require-agent is given twice"},
    {{"--host-id="}, "--host-id is empty"},
    {{"--hos"}, "\"--hos\" is no option"},
    {{"word"}, "\"word\" is no option"},
    {{"--margin=20s", "--kill-budget=20s"}, ""}, // what the timing says is its own test's
};

static char *plain(const char *text)
{
    char *word = NULL;

    memcpy(&word, &text, sizeof(word));
    return word;
}

static int parse(const char *const *words, struct options *options, struct err *err)
{
    char *argv[WORDS_MAX] = {plain("metafence-run")};
    int argc = 1;

    for (; words[argc - 1]; argc++)
        argv[argc] = plain(words[argc - 1]);
    return options_parse(argc, argv, 7, options, err);
}

static void test_each_option(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *words[WORDS_MAX] = {"--socket=s", "--state=t", "--pod-uid=12345678"};
        size_t used = 3;
        struct options options = {0};
        struct err err = {0};
        int result = 0;
        for (size_t word = 0; word < 4 && cases[i].words[word]; word++)
            words[used++] = cases[i].words[word];
        words[used++] = "--";
        words[used] = "meta";
        result = parse(words, &options, &err);
        if (result != (cases[i].says ? -1 : 0) ||
            (cases[i].says && (!strstr(err.msg, cases[i].says) || err.kind != ERR_INVALID)))
            fail_msg("%s: %d, \"%s\"", cases[i].words[0], result, err.msg);
    }
}

static void test_what_is_missing(void **state)
{
    static char long_path[140];
    static const struct {
        const char *words[6];
        const char *says;
    } lacks[] = {
        {{"--", "meta"}, "--state is missing"},
        {{"--state=t", "--", "meta"}, "--socket is missing"},
        {{"--state=t", "--socket=s", "--", "meta"}, "--pod-uid is missing"},
        {{"--state=t", "--socket=s", "--pod-uid=1234567", "--", "meta"}, "has less than 8"},
        {{"--state=t", "--socket=s", "--pod-uid=1234:678", "--", "meta"}, "must be letters"},
        {{"--state=t", "--socket=s", "--pod-uid=Ab-4z678", "--"}, "no command to run"},
        {{"--state=t", "--socket=s", "--pod-uid=12345678"}, "no command to run"},
        {{"--state=t", long_path, "--pod-uid=12345678", "--", "meta"}, "the kernel takes 107"},
        {{"probe"}, "is none of startup, liveness, readiness"},
        {{"probe", "startup"}, "--state is missing"},
        {{"status"}, "--state is missing"},
    };

    (void)state;
    (void)snprintf(long_path, sizeof(long_path), "--socket=/%0108d", 0);
    for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
        struct options options = {0};
        struct err err = {0};
        if (parse(lacks[i].words, &options, &err) != -1 || !strstr(err.msg, lacks[i].says))
            fail_msg("%s: \"%s\"", lacks[i].says, err.msg);
    }
}

static void test_commands(void **state)
{
    static const struct {
        const char *words[5];
        enum options_command command;
    } good[] = {
        {{"--version"}, OPTIONS_VERSION},
        {{"--help"}, OPTIONS_HELP},
        {{NULL}, OPTIONS_HELP},
        {{"status", "--state=t"}, OPTIONS_STATUS},
        {{"probe", "startup", "--state=t"}, OPTIONS_PROBE_STARTUP},
        {{"probe", "liveness", "--state", "t"}, OPTIONS_PROBE_LIVENESS},
        {{"probe", "readiness", "--state=t"}, OPTIONS_PROBE_READINESS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct options options = {0};
        struct err err = {0};
        if (parse(good[i].words, &options, &err) != 0 || options.command != good[i].command)
            fail_msg("%s: \"%s\"", good[i].words[0], err.msg);
    }
}

// Each has a name of its own, and what a newer peer may say is no crash.
static const char *reason_of(unsigned i)
{
    return fence_reason_name((enum fence_reason)i);
}

static const char *hold_of(unsigned i)
{
    return shim_hold_name((enum shim_hold)i);
}

static const char *state_of(unsigned i)
{
    return shim_state_name((enum shim_state)i);
}

static const char *role_of(unsigned i)
{
    return fence_role_name((enum fence_role)i);
}

static void test_names(void **state)
{
    static const struct {
        const char *(*name)(unsigned i);
        unsigned last;
    } enums[] = {{reason_of, FENCE_REASON_LAST},
                 {hold_of, SHIM_HOLD_LAST},
                 {state_of, SHIM_ENDED},
                 {role_of, FENCE_ROLE_KILL}};

    (void)state;
    for (size_t e = 0; e < sizeof(enums) / sizeof(enums[0]); e++) {
        for (unsigned i = 0; i <= enums[e].last; i++) {
            assert_string_not_equal(enums[e].name(i), "?");
            for (unsigned before = 0; before < i; before++)
                assert_string_not_equal(enums[e].name(i), enums[e].name(before));
        }
        assert_string_equal(enums[e].name(enums[e].last + 1), "?");
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_each_option),
    cmocka_unit_test(test_what_is_missing),
    cmocka_unit_test(test_commands),
    cmocka_unit_test(test_names),
};

UNIT_MAIN(tests)
