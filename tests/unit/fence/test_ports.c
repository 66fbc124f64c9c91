// SPDX-License-Identifier: Apache-2.0
// Socket tables: good ones, and every way to be broken, which must say "unknown" and never
// "closed".
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/diag.h"
#include "fence/ports.h"

#define HEAD                                                                                   \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "      \
    "timeout inode\n"
#define HEAD6                                                                                  \
    "  sl  local_address                         remote_address                        st "    \
    "tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
#define REST              "00000000:00000000 00:00000000 00000000     0        0 12345 1 0000 100 0 0 10 0\n"
#define ROW(local, state) "   0: " local " 00000000:0000 " state " " REST
// 5690 = 163A, 1250 = 04E2, 5691 = 163B
#define SERVICE   ROW("0100007F:163A", "0A")
#define METRICS   ROW("00000000:04E2", "0A")
#define DASHBOARD ROW("00000000:163B", "0A")
#define OTHER     ROW("00000000:1538", "0A")
#define ZERO6     "00000000000000000000000000000000"
#define SERVICE6  "  10: " ZERO6 ":163A " ZERO6 ":0000 0A " REST

static const struct ports_wanted wanted = {.service = 5690, .metrics = 1250, .dashboard = 5691};

static const struct {
    const char *name;
    const char *text;
    bool is_known;
    uint32_t listening;
} tables[] = {
    {"nobody listens", HEAD, true, 0},
    {"others listen", HEAD OTHER, true, 0},
    {"service", HEAD OTHER SERVICE, true, SHIM_PORT_SERVICE},
    {"all three", HEAD SERVICE METRICS DASHBOARD, true,
     SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD},
    {"IPv6", HEAD6 SERVICE6, true, SHIM_PORT_SERVICE},
    {"lower case", HEAD ROW("0100007f:163a", "0a"), true, SHIM_PORT_SERVICE},
    {"connected, not listening", HEAD ROW("0100007F:163A", "01"), true, 0},
    {"time-wait", HEAD ROW("0100007F:163A", "06"), true, 0},
    {"row number of five digits", HEAD "12345: 0100007F:163A 00000000:0000 0A " REST, true,
     SHIM_PORT_SERVICE},
    {"empty file", "", false, 0},
    {"no header", SERVICE, false, 0},
    {"other header", "Netid State\n" SERVICE, false, 0},
    {"header cut", "  sl  local_addr", false, 0},
    {"last row cut in the address", HEAD SERVICE "   1: 0100007F:16", false, 0},
    {"last row cut before its newline", HEAD "   0: 0100007F:163A 00000000:0000 0A 0", false,
     0},
    {"row cut in the middle", HEAD "   0: 0100007F:163A 00000000:0000\n" SERVICE, false, 0},
    {"empty line", HEAD "\n" SERVICE, false, 0},
    {"no row number", HEAD " : 0100007F:163A 00000000:0000 0A " REST, false, 0},
    {"not hex", HEAD ROW("0100007G:163A", "0A"), false, 0},
    {"short port", HEAD ROW("0100007F:163", "0A"), false, 0},
    {"long port", HEAD ROW("0100007F:163A0", "0A"), false, 0},
    {"address of 16 digits", HEAD ROW("0100007F0100007F:163A", "0A"), false, 0},
    {"state of one digit", HEAD ROW("0100007F:163A", "A"), false, 0},
    {"garbage after good rows", HEAD SERVICE "\xff\xfe\x01\n", false, 0},
};

// Fed in pieces of every size from 1 to 7 and as a whole: the same result.
static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        size_t size = strlen(tables[i].text);
        for (size_t piece = 1; piece < 9; piece++) {
            struct ports_table table = {.wanted = wanted};
            size_t step = piece == 8 ? size + 1 : piece;
            uint32_t listening = 0;
            bool is_known = false;

            for (size_t at = 0; at < size; at += step)
                ports_feed(&table, tables[i].text + at, size - at < step ? size - at : step);
            is_known = ports_end(&table, &listening);
            if (is_known != tables[i].is_known || listening != tables[i].listening)
                fail_msg("%s in pieces of %zu: known %d, 0x%x", tables[i].name, step, is_known,
                         listening);
        }
    }
}

static void test_a_nul_byte_breaks_a_table(void **state)
{
    static const char text[] = HEAD "   0: 0100007F:163A\0 00000000:0000 0A x\n";
    struct ports_table table = {.wanted = wanted};
    uint32_t listening = 0;

    (void)state;
    ports_feed(&table, text, sizeof(text) - 1);
    assert_false(ports_end(&table, &listening));
}

static void test_endless_line(void **state)
{
    struct ports_table table = {.wanted = wanted};
    uint32_t listening = 0;

    (void)state;
    for (int i = 0; i < 100000; i++)
        ports_feed(&table, "aaaaaaaa", 8);
    assert_false(ports_end(&table, &listening));
}

static void test_huge_table(void **state)
{
    struct ports_table table = {.wanted = wanted};
    uint32_t listening = 0;

    (void)state;
    ports_feed(&table, HEAD SERVICE, strlen(HEAD SERVICE));
    for (int i = 0; i < 100000; i++)
        ports_feed(&table, OTHER, strlen(OTHER));
    assert_true(ports_end(&table, &listening));
    assert_int_equal(listening, SHIM_PORT_SERVICE);
    for (int i = 0; i < 100000; i++)
        ports_feed(&table, OTHER, strlen(OTHER));
    assert_false(ports_end(&table, &listening));
}

// Any single byte of a table replaced by any of a few: never a crash, and a known answer only
// ever names what a table can say.
static void test_every_byte_spoiled(void **state)
{
    static const char spoil[] = "\0\n 0Az:\xff";
    char text[] = HEAD SERVICE METRICS;
    const uint32_t all = SHIM_PORT_SERVICE | SHIM_PORT_METRICS | SHIM_PORT_DASHBOARD;

    (void)state;
    for (size_t at = 0; at < sizeof(text) - 1; at++) {
        char saved = text[at];
        for (size_t s = 0; s < sizeof(spoil) - 1; s++) {
            struct ports_table table = {.wanted = wanted};
            uint32_t listening = 0;
            text[at] = spoil[s];
            ports_feed(&table, text, sizeof(text) - 1);
            (void)ports_end(&table, &listening);
            assert_int_equal(listening & ~all, 0);
        }
        text[at] = saved;
    }
}

// ---- the kernel, with a listener of our own

static int listen_somewhere(int family, uint16_t *ret_port)
{
    struct sockaddr_in6 address = {0};
    socklen_t size = sizeof(address);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || listen(fd, 1) < 0 || getsockname(fd, (void *)&address, &size) < 0)
        return -1;
    // The port is at the same place in both families.
    *ret_port = ntohs(address.sin6_port);
    return fd;
}

static void test_our_own_listeners(void **state)
{
    static const int families[] = {AF_INET, AF_INET6};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct ports_wanted own = {.metrics = 1, .dashboard = 2};
        struct ports_reader reader = {0};
        uint32_t seen = 0;
        int fd = listen_somewhere(families[i], &own.service);

        if (fd < 0 && families[i] == AF_INET6)
            continue; // a host without IPv6
        assert_true(fd >= 0);
        ports_open(&reader, &own);
        assert_int_equal(ports_read_proc(&own), SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE);
        assert_int_equal(ports_read(&reader), SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE);
        seen = ports_read_stable(&reader, 0);
        assert_int_equal(seen, SHIM_PORTS_KNOWN | SHIM_PORT_SERVICE);
        close(fd);
        assert_int_equal(ports_read_stable(&reader, seen), SHIM_PORTS_KNOWN);
        assert_int_equal(ports_read_proc(&own), SHIM_PORTS_KNOWN);
        // Without a socket monitor, /proc answers.
        ports_close(&reader);
        assert_int_equal(ports_read(&reader), SHIM_PORTS_KNOWN);
        ports_close(&reader);
    }
}

// ---- answers of the socket monitor

struct reply {
    struct nlmsghdr head;
    struct inet_diag_msg message;
};

static uint32_t ports_sum; // of the ports that were reported

static void add_port(uint16_t port, void *arg)
{
    (void)arg;
    ports_sum += port;
}

static struct reply reply_of(uint16_t port)
{
    return (struct reply){.head = {.nlmsg_len = sizeof(struct reply),
                                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                   .nlmsg_seq = 7},
                          .message = {.id = {.idiag_sport = htons(port)}}};
}

static struct diag_answer feed(const void *bytes, size_t size)
{
    struct diag_answer answer = {.seq = 7};

    ports_sum = 0;
    diag_feed(&answer, bytes, size, add_port, NULL);
    return answer;
}

static void test_diag_answers(void **state)
{
    struct reply replies[3] = {reply_of(5690), reply_of(1250), reply_of(1)};
    struct diag_answer answer = {0};

    (void)state;
    replies[2].head.nlmsg_type = NLMSG_DONE;
    answer = feed(replies, sizeof(replies));
    assert_true(answer.is_done && !answer.is_broken);
    assert_int_equal(ports_sum, 5690 + 1250);
    // Not done yet.
    answer = feed(replies, 2 * sizeof(replies[0]));
    assert_false(answer.is_done || answer.is_broken);
    // Cut at every byte: broken, or not done.
    for (size_t size = 0; size < sizeof(replies); size++)
        assert_false(feed(replies, size).is_done);
    for (int way = 0; way < 6; way++) {
        struct reply bad[2] = {reply_of(5690), reply_of(1)};

        switch (way) {
        case 0: bad[0].head.nlmsg_seq = 8; break;
        case 1: bad[0].head.nlmsg_type = NLMSG_ERROR; break;
        case 2: bad[0].head.nlmsg_len = 0; break;
        case 3: bad[0].head.nlmsg_len = UINT32_MAX; break;
        case 4: bad[0].head.nlmsg_len = sizeof(struct nlmsghdr) + 1; break;
        case 5: bad[0].head.nlmsg_flags = NLM_F_DUMP_INTR; break;
        }
        bad[1].head.nlmsg_type = NLMSG_DONE;
        answer = feed(bad, sizeof(bad));
        if (!answer.is_broken || answer.is_done)
            fail_msg("way %d is taken", way);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tables),
    cmocka_unit_test(test_a_nul_byte_breaks_a_table),
    cmocka_unit_test(test_endless_line),
    cmocka_unit_test(test_huge_table),
    cmocka_unit_test(test_every_byte_spoiled),
    cmocka_unit_test(test_our_own_listeners),
    cmocka_unit_test(test_diag_answers),
};

UNIT_MAIN(tests)
