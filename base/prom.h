// SPDX-License-Identifier: Apache-2.0
#pragma once
// prom: writes metrics as Prometheus' text format 0.0.4 or as OpenMetrics 1.0. Pure: numbers
// in, text out; durations are int64_t nanoseconds and are written as exact decimal seconds.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/httphead.h"

enum prom_type { PROM_COUNTER = 0, PROM_GAUGE, PROM_HISTOGRAM, PROM_INFO };

// One page under way.
struct prom {
    struct buf *out; // borrowed
    bool is_openmetrics;
    enum prom_type type; // of the present family
    const char *name;    // same; borrowed
};

// Labels of a sample. They end at the first NULL name; names are literals, values may be any
// text.
struct prom_label {
    const char *name;
    const char *value;
};
#define PROM_NONE        NULL
#define PROM_LABELS(...) ((const struct prom_label[]){__VA_ARGS__, {NULL, NULL}})

// Whether an Accept header prefers OpenMetrics to text.
bool prom_accepts_openmetrics(struct httphead_text accept);
const char *prom_content_type(bool is_openmetrics); // literal

// Begins a family: what the samples up to the next one belong to. `name` is without the
// "_total" of a counter and the "_info" of an info; it is borrowed until then. `help` is one
// literal sentence.
void prom_family(struct prom *prom, enum prom_type type, const char *name, const char *help);

void prom_count(struct prom *prom, const struct prom_label *labels, uint64_t value);
void prom_int(struct prom *prom, const struct prom_label *labels, int64_t value);
void prom_seconds(struct prom *prom, const struct prom_label *labels, int64_t ns);

// A family of one unlabelled sample.
void prom_one_count(struct prom *prom, const char *name, const char *help, uint64_t value);
void prom_one_int(struct prom *prom, const char *name, const char *help, int64_t value);
void prom_one_seconds(struct prom *prom, const char *name, const char *help, int64_t ns);

// Ends the page.
void prom_end(struct prom *prom);

// --- histograms of durations ---

#define PROM_BUCKETS 14

// Zero is an empty histogram. Its bounds are the same for all, from 0.5 ms to 60 s.
struct prom_histogram {
    uint64_t buckets[PROM_BUCKETS + 1]; // not cumulative; the last has no bound
    int64_t sum_ns;                     // saturates
};

// Negative durations count as 0.
void prom_observe(struct prom_histogram *histogram, int64_t ns);
void prom_histogram(struct prom *prom, const struct prom_label *labels,
                    const struct prom_histogram *histogram);
