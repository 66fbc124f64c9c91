// SPDX-License-Identifier: Apache-2.0
// Both formats to the byte, and which of them an Accept header gets.
#include "tests/unit/unit.h"

#include <string.h>

#include "base/clock.h"
#include "base/prom.h"

static void write_page(struct buf *out, bool is_openmetrics)
{
    struct prom prom = {.out = out, .is_openmetrics = is_openmetrics};
    struct prom_histogram histogram = {0};

    prom_family(&prom, PROM_INFO, "x_build", "What runs.");
    prom_int(&prom, PROM_LABELS({"version", "1"}), 1);
    prom_one_count(&prom, "x_reads", "Reads.", UINT64_MAX);
    prom_one_int(&prom, "x_up", "Up.", -1);
    prom_family(&prom, PROM_GAUGE, "x_role", "Role.");
    prom_int(&prom, PROM_LABELS({"role", "a\"b\\c\nd"}, {"k", ""}), 1);
    prom_one_seconds(&prom, "x_age_seconds", "Age.", 1500 * NS_PER_MS);
    prom_family(&prom, PROM_HISTOGRAM, "x_took_seconds", "Time.");
    prom_observe(&histogram, -5);
    prom_observe(&histogram, NS_PER_MS / 2);     // a bound belongs to its bucket
    prom_observe(&histogram, NS_PER_MS / 2 + 1); // and the next nanosecond to the next
    prom_observe(&histogram, 3600 * NS_PER_SEC);
    prom_histogram(&prom, PROM_LABELS({"method", "permit"}), &histogram);
    prom_end(&prom);
}

#define BUCKET(le, n) "x_took_seconds_bucket{method=\"permit\",le=\"" le "\"} " #n "\n"
#define HISTOGRAM                                                                              \
    "# HELP x_took_seconds Time.\n# TYPE x_took_seconds histogram\n" BUCKET("0.0005", 2)       \
        BUCKET("0.001", 3) BUCKET("0.002", 3) BUCKET("0.005", 3) BUCKET("0.01", 3) BUCKET(     \
            "0.025", 3) BUCKET("0.05", 3) BUCKET("0.1", 3) BUCKET("0.25", 3) BUCKET("0.5", 3)  \
            BUCKET("1.0", 3) BUCKET("2.5", 3) BUCKET("10.0", 3) BUCKET("60.0", 3)              \
                BUCKET("+Inf", 4) "x_took_seconds_sum{method=\"permit\"} 3600.001000001\n"     \
                                  "x_took_seconds_count{method=\"permit\"} 4\n"
#define GAUGES                                                                                 \
    "# HELP x_up Up.\n# TYPE x_up gauge\nx_up -1\n"                                            \
    "# HELP x_role Role.\n# TYPE x_role gauge\nx_role{role=\"a\\\"b\\\\c\\nd\",k=\"\"} 1\n"    \
    "# HELP x_age_seconds Age.\n# TYPE x_age_seconds gauge\nx_age_seconds 1.5\n"

static void test_text(void **state)
{
    struct buf out = {0};

    (void)state;
    write_page(&out, false);
    assert_string_equal(out.data, "# HELP x_build_info What runs.\n# TYPE x_build_info gauge\n"
                                  "x_build_info{version=\"1\"} 1\n"
                                  "# HELP x_reads_total Reads.\n# TYPE x_reads_total counter\n"
                                  "x_reads_total 18446744073709551615\n" GAUGES HISTOGRAM);
    buf_done(&out);
}

static void test_openmetrics(void **state)
{
    struct buf out = {0};

    (void)state;
    write_page(&out, true);
    assert_string_equal(out.data,
                        "# HELP x_build What runs.\n# TYPE x_build info\n"
                        "x_build_info{version=\"1\"} 1\n"
                        "# HELP x_reads Reads.\n# TYPE x_reads counter\n"
                        "x_reads_total 18446744073709551615\n" GAUGES HISTOGRAM "# EOF\n");
    buf_done(&out);
}

static void test_extremes(void **state)
{
    struct buf out = {0};
    struct prom prom = {.out = &out};
    struct prom_histogram histogram = {0};

    (void)state;
    prom_family(&prom, PROM_GAUGE, "x", "X.");
    buf_clear(&out);
    prom_seconds(&prom, PROM_NONE, INT64_MIN);
    prom_seconds(&prom, PROM_NONE, -1);
    prom_seconds(&prom, PROM_NONE, 0);
    assert_string_equal(out.data, "x -9223372036.854775808\nx -0.000000001\nx 0.0\n");
    prom_observe(&histogram, INT64_MAX);
    prom_observe(&histogram, INT64_MAX);
    assert_true(histogram.sum_ns == INT64_MAX);
    buf_done(&out);
}

static const struct {
    const char *accept;
    bool is_openmetrics;
} accepts[] = {
    {"", false},
    {"*/*", false},
    {"text/plain", false},
    {"application/openmetrics-text", true},
    {"Application/OpenMetrics-Text; version=1.0.0", true},
    {"application/openmetrics-text;q=0", false},
    {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
     "application/openmetrics-text;version=0.0.1;q=0.5,"
     "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
     "*/*;q=0.2",
     true},
    {"text/plain;version=0.0.4;q=0.6, application/openmetrics-text;q=0.5, */*;q=0.1", false},
    {"text/html,application/xhtml+xml,*/*;q=0.8", false},
    {"application/openmetrics-text;q=banana", false},
    {"application/openmetrics-text;q=0.001", true},
    {"application/openmetrics-text ; Q=1 , text/plain", true},
    {",,;,q=1,", false},
    {"application/openmetrics-textual", false},
};

static void test_accept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(accepts) / sizeof(accepts[0]); i++) {
        struct httphead_text text = {accepts[i].accept, strlen(accepts[i].accept)};

        if (prom_accepts_openmetrics(text) != accepts[i].is_openmetrics)
            fail_msg("%s", accepts[i].accept);
    }
    assert_false(prom_accepts_openmetrics((struct httphead_text){0}));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_openmetrics),
    cmocka_unit_test(test_extremes),
    cmocka_unit_test(test_accept),
};

UNIT_MAIN(tests)
