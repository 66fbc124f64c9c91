// SPDX-License-Identifier: Apache-2.0
#include "agent/kube/order.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define BACKOFF_MIN_NS (500 * NS_PER_MS)
#define BACKOFF_MAX_NS (4 * NS_PER_SEC)
#define DENIED_NS      (8 * NS_PER_SEC)
#define DAY_S          INT64_C(86400)

// --- time ---

// Reads exactly `count` digits. Returns -1 where there are none.
static int digits(const char **at, int count)
{
    int value = 0;

    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return -1;
        value = value * 10 + (**at - '0');
    }
    return value;
}

static bool skip(const char **at, const char *any)
{
    if (!**at || !strchr(any, **at))
        return false;
    (*at)++;
    return true;
}

static int month_days(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && is_leap);
}

// Days since 1970-01-01, for years from 1970.
static int64_t days_since_epoch(int year, int month, int day)
{
    int64_t before = year - 1;
    int64_t days = before * 365 + before / 4 - before / 100 + before / 400 - 719162;

    for (int m = 1; m < month; m++)
        days += month_days(year, m);
    return days + day - 1;
}

static bool parse_date(const char **at, int64_t *ret_s)
{
    int year = digits(at, 4);
    int month = skip(at, "-") ? digits(at, 2) : -1;
    int day = skip(at, "-") ? digits(at, 2) : -1;

    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > month_days(year, month))
        return false;
    *ret_s = days_since_epoch(year, month, day) * DAY_S;
    return true;
}

static bool parse_clock(const char **at, int64_t *ret_s)
{
    int hour = skip(at, "Tt ") ? digits(at, 2) : -1;
    int minute = skip(at, ":") ? digits(at, 2) : -1;
    int second = skip(at, ":") ? digits(at, 2) : -1;

    // 60: a leap second.
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
        return false;
    *ret_s += hour * 3600 + minute * 60 + second;
    return true;
}

static bool parse_fraction(const char **at, int64_t *ret_ns)
{
    int64_t unit = NS_PER_SEC;
    int count = 0;

    *ret_ns = 0;
    if (!skip(at, "."))
        return true;
    for (; **at >= '0' && **at <= '9'; (*at)++, count++) {
        unit /= 10; // beyond nanoseconds: 0
        *ret_ns += unit * (**at - '0');
    }
    return count > 0;
}

static bool parse_offset(const char **at, int64_t *ret_s)
{
    int sign = **at == '-' ? -1 : 1;
    int hour = 0;
    int minute = 0;

    if (skip(at, "Zz"))
        return true;
    if (!skip(at, "+-"))
        return false;
    hour = digits(at, 2);
    minute = skip(at, ":") ? digits(at, 2) : -1;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59)
        return false;
    *ret_s -= sign * (hour * 3600 + minute * 60);
    return true;
}

int kube_time_parse(const char *text, int64_t *ret_wall_ns, struct err *err)
{
    const char *at = text;
    int64_t seconds = 0;
    int64_t fraction_ns = 0;

    // 9223372036 s: the year 2262.
    if (!parse_date(&at, &seconds) || !parse_clock(&at, &seconds) ||
        !parse_fraction(&at, &fraction_ns) || !parse_offset(&at, &seconds) || *at ||
        seconds < 0 || seconds > INT64_MAX / NS_PER_SEC - 1)
        return err_set(err, ERR_INVALID, 0,
                       "\"%.40s\" is no time: write it as in 2030-01-31T18:00:00Z", text);
    *ret_wall_ns = seconds * NS_PER_SEC + fraction_ns;
    return 0;
}

const char *kube_time_format(int64_t wall_ns, char buf[KUBE_TIME_SIZE])
{
    time_t seconds = (time_t)((wall_ns + NS_PER_SEC - 1) / NS_PER_SEC);
    struct tm tm = {0};

    (void)gmtime_r(&seconds, &tm); // fails only beyond the year 2^31
    if (strftime(buf, KUBE_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        buf[0] = '\0';
    return buf;
}

// --- orders ---

static struct kube_order_value value_of(const char *text)
{
    struct kube_order_value value = {.is_present = text != NULL};

    (void)snprintf(value.text, sizeof(value.text), "%s", text ? text : "");
    return value;
}

static bool is_same(const struct kube_order_value *a, const struct kube_order_value *b)
{
    return a->is_present == b->is_present && strcmp(a->text, b->text) == 0;
}

void kube_order_mirror(struct kube_order *order, const char *text)
{
    order->taken = value_of(text);
    order->is_pending = true;
    order->must_write = order->is_sending || order->in_doubt;
    order->baseline = order->seen;
    order->has_baseline = order->seen_version[0] != '\0';
    order->failures = 0;
    order->not_before = (struct instant){0};
}

void kube_order_seen(struct kube_order *order, const char *text, const char *version)
{
    order->seen = value_of(text);
    order->has_news = true;
    (void)snprintf(order->seen_version, sizeof(order->seen_version), "%s", version);
}

void kube_order_read(struct kube_order *order, const char *text, const char *version,
                     struct instant sent_at)
{
    order->needs_look = false;
    if (order->is_sending)
        return;
    kube_await_read(&order->await, sent_at);
    kube_order_seen(order, text, version);
}

// An order that can't be written is still an order; but who then changes the annotation has
// spoken last.
static bool is_overruled(struct kube_order *order)
{
    if (!order->has_baseline) {
        order->has_baseline = true;
        order->baseline = order->seen;
    }
    return order->is_denied && !is_same(&order->seen, &order->baseline);
}

bool kube_order_sync(struct kube_order *order, struct instant now)
{
    if (!order->has_news || order->is_sending)
        return false;
    if (order->is_pending && !is_overruled(order)) {
        if (is_same(&order->seen, &order->taken) && !order->must_write)
            order->is_pending = false;
        order->has_synced = true; // the order is in force already
        return false;
    }
    order->is_pending = order->is_denied = order->must_write = false;
    // A watch that lags must not take back what was just written: it is time for a read.
    if (kube_await_is_older(&order->await, order->seen_version)) {
        order->needs_look = instant_reached(now, order->await.until);
        return false;
    }
    order->has_news = order->needs_look = false;
    if (order->has_synced && is_same(&order->seen, &order->taken))
        return false;
    order->has_synced = true;
    order->taken = order->seen;
    return true;
}

bool kube_order_next(struct kube_order *order, struct instant now)
{
    if (!order->is_pending || order->is_sending || !instant_reached(now, order->not_before))
        return false;
    order->is_sending = true;
    order->has_news = false;
    order->sent = order->taken;
    return true;
}

void kube_order_done(struct kube_order *order, enum k8s_outcome outcome, const char *version,
                     struct instant now)
{
    int64_t wait_ns = order->failures < 3 ? BACKOFF_MIN_NS << order->failures : BACKOFF_MAX_NS;

    order->is_sending = false;
    if (outcome == K8S_OK) {
        order->is_denied = order->in_doubt = false;
        order->failures = 0;
        order->is_pending = !is_same(&order->sent, &order->taken);
        order->must_write = order->is_pending;
        kube_await_begin(&order->await, version, order->seen_version, now);
        return;
    }
    order->is_denied = outcome == K8S_DENIED;
    order->in_doubt |= outcome == K8S_UNKNOWN || outcome == K8S_BUSY || outcome == K8S_GARBAGE;
    order->must_write |= order->in_doubt && !is_same(&order->sent, &order->taken);
    order->failures++;
    order->not_before = instant_add(now, order->is_denied ? DENIED_NS : wait_ns);
}

void kube_order_hurry(struct kube_order *order, struct instant now)
{
    order->failures = 0;
    order->not_before = instant_min(order->not_before, now);
}

struct instant kube_order_wake(const struct kube_order *order)
{
    if (order->is_sending)
        return INSTANT_NEVER;
    if (order->is_pending)
        return order->not_before;
    return order->has_news && order->await.is_waiting && !order->needs_look ? order->await.until
                                                                            : INSTANT_NEVER;
}
