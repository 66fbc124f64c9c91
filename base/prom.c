// SPDX-License-Identifier: Apache-2.0
#include "base/prom.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MS          NS_PER_MS
#define S           NS_PER_SEC
#define OPENMETRICS "application/openmetrics-text"

static const int64_t bounds_ns[PROM_BUCKETS] = {
    MS / 2,   1 * MS,   2 * MS,   5 * MS, 10 * MS,   25 * MS, 50 * MS,
    100 * MS, 250 * MS, 500 * MS, 1 * S,  2500 * MS, 10 * S,  60 * S};

// --- which format ---

static struct httphead_text trimmed(const char *data, size_t len)
{
    while (len > 0 && (*data == ' ' || *data == '\t')) {
        data++;
        len--;
    }
    while (len > 0 && (data[len - 1] == ' ' || data[len - 1] == '\t'))
        len--;
    return (struct httphead_text){data, len};
}

// The part of `rest` before `c`, trimmed; `rest` keeps what is behind it.
static struct httphead_text next_part(struct httphead_text *rest, char c)
{
    const char *end = memchr(rest->data, c, rest->len);
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    struct httphead_text part = trimmed(rest->data, len);

    rest->data += len + (end ? 1 : 0);
    rest->len -= len + (end ? 1 : 0);
    return part;
}

// "q=0.75" in thousandths; anything that is no weight is none: 0.
static int weight_of(struct httphead_text text)
{
    int weight = 0;
    int unit = 1000;

    for (size_t i = 2; i < text.len && unit > 0; i++) {
        char c = text.data[i];

        if (i == 3 && c == '.')
            continue;
        if (c < '0' || c > '9')
            return 0;
        weight += (c - '0') * unit;
        unit /= 10;
    }
    return weight > 1000 ? 1000 : weight;
}

// The weight of one range of an Accept header, and its type cut off.
static int take_range(struct httphead_text range, struct httphead_text *ret_type)
{
    int weight = 1000;

    *ret_type = next_part(&range, ';');
    while (range.len > 0) {
        struct httphead_text part = next_part(&range, ';');

        if (part.len >= 2 && (part.data[0] | 0x20) == 'q' && part.data[1] == '=')
            weight = weight_of(part);
    }
    return weight;
}

static int greater(int a, int b)
{
    return a > b ? a : b;
}

bool prom_accepts_openmetrics(struct httphead_text accept)
{
    int openmetrics = 0;
    int text = 0;

    while (accept.len > 0) {
        struct httphead_text type;
        int weight = take_range(next_part(&accept, ','), &type);

        if (httphead_text_is_nocase(type, OPENMETRICS))
            openmetrics = greater(openmetrics, weight);
        else if (httphead_text_is_nocase(type, "text/plain"))
            text = greater(text, weight);
    }
    return openmetrics > 0 && openmetrics >= text;
}

const char *prom_content_type(bool is_openmetrics)
{
    return is_openmetrics ? OPENMETRICS "; version=1.0.0; charset=utf-8"
                          : "text/plain; version=0.0.4; charset=utf-8";
}

// --- text ---

static const char *suffix_of(enum prom_type type)
{
    switch (type) {
    case PROM_COUNTER: return "_total";
    case PROM_INFO: return "_info";
    case PROM_GAUGE:
    case PROM_HISTOGRAM: break;
    }
    return "";
}

static const char *type_name(const struct prom *prom)
{
    switch (prom->type) {
    case PROM_COUNTER: return "counter";
    case PROM_GAUGE: return "gauge";
    case PROM_HISTOGRAM: return "histogram";
    case PROM_INFO: break;
    }
    return prom->is_openmetrics ? "info" : "gauge";
}

void prom_family(struct prom *prom, enum prom_type type, const char *name, const char *help)
{
    const char *suffix = NULL;

    prom->type = type;
    prom->name = name;
    // In OpenMetrics a family has its bare name, in the older format its samples'.
    suffix = prom->is_openmetrics ? "" : suffix_of(type);
    buf_printf(prom->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix,
               type_name(prom));
}

static void put_value(struct buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\n')
            buf_puts(out, "\\n");
        else if (*value == '\\' || *value == '"')
            buf_printf(out, "\\%c", *value);
        else
            buf_putc(out, *value);
    }
}

// The beginning of a sample, up to its value. `le`: the bound of a bucket, NULL: it is none.
static void put_sample(struct prom *prom, const char *suffix, const struct prom_label *labels,
                       const char *le)
{
    struct buf *out = prom->out;
    char separator = '{';

    buf_printf(out, "%s%s", prom->name, suffix);
    for (; labels && labels->name; labels++) {
        buf_printf(out, "%c%s=\"", separator, labels->name);
        put_value(out, labels->value);
        buf_putc(out, '"');
        separator = ',';
    }
    if (le) {
        buf_printf(out, "%cle=\"%s\"", separator, le);
        separator = ',';
    }
    buf_puts(out, separator == '{' ? " " : "} ");
}

// "0.25", "2.0": exact, with at least one digit behind the point, as OpenMetrics writes bounds.
static const char *seconds_text(int64_t ns, char *text, size_t size)
{
    uint64_t magnitude = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    size_t len = (size_t)snprintf(text, size, "%s%" PRIu64 ".%09" PRIu64, ns < 0 ? "-" : "",
                                  magnitude / (uint64_t)S, magnitude % (uint64_t)S);

    while (text[len - 1] == '0' && text[len - 2] != '.')
        text[--len] = '\0';
    return text;
}

void prom_count(struct prom *prom, const struct prom_label *labels, uint64_t value)
{
    put_sample(prom, suffix_of(prom->type), labels, NULL);
    buf_printf(prom->out, "%" PRIu64 "\n", value);
}

void prom_int(struct prom *prom, const struct prom_label *labels, int64_t value)
{
    put_sample(prom, suffix_of(prom->type), labels, NULL);
    buf_printf(prom->out, "%" PRId64 "\n", value);
}

void prom_seconds(struct prom *prom, const struct prom_label *labels, int64_t ns)
{
    char text[40];

    put_sample(prom, suffix_of(prom->type), labels, NULL);
    buf_printf(prom->out, "%s\n", seconds_text(ns, text, sizeof(text)));
}

void prom_one_count(struct prom *prom, const char *name, const char *help, uint64_t value)
{
    prom_family(prom, PROM_COUNTER, name, help);
    prom_count(prom, PROM_NONE, value);
}

void prom_one_int(struct prom *prom, const char *name, const char *help, int64_t value)
{
    prom_family(prom, PROM_GAUGE, name, help);
    prom_int(prom, PROM_NONE, value);
}

void prom_one_seconds(struct prom *prom, const char *name, const char *help, int64_t ns)
{
    prom_family(prom, PROM_GAUGE, name, help);
    prom_seconds(prom, PROM_NONE, ns);
}

void prom_end(struct prom *prom)
{
    if (prom->is_openmetrics)
        buf_puts(prom->out, "# EOF\n");
}

// --- histograms ---

void prom_observe(struct prom_histogram *histogram, int64_t ns)
{
    size_t i = 0;

    if (ns < 0)
        ns = 0;
    while (i < PROM_BUCKETS && ns > bounds_ns[i])
        i++;
    histogram->buckets[i]++;
    if (__builtin_add_overflow(histogram->sum_ns, ns, &histogram->sum_ns))
        histogram->sum_ns = INT64_MAX;
}

void prom_histogram(struct prom *prom, const struct prom_label *labels,
                    const struct prom_histogram *histogram)
{
    char text[40];
    uint64_t count = 0;

    for (size_t i = 0; i <= PROM_BUCKETS; i++) {
        count += histogram->buckets[i];
        put_sample(prom, "_bucket", labels,
                   i < PROM_BUCKETS ? seconds_text(bounds_ns[i], text, sizeof(text)) : "+Inf");
        buf_printf(prom->out, "%" PRIu64 "\n", count);
    }
    put_sample(prom, "_sum", labels, NULL);
    buf_printf(prom->out, "%s\n", seconds_text(histogram->sum_ns, text, sizeof(text)));
    put_sample(prom, "_count", labels, NULL);
    buf_printf(prom->out, "%" PRIu64 "\n", count);
}
