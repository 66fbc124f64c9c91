// SPDX-License-Identifier: Apache-2.0
#include "agent/http_answer.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define LOOP_LIMIT_NS (10 * NS_PER_SEC)
#define CHECKS_MAX    7

enum verdict { PASS = 0, WARN, FAIL };

struct finding {
    enum verdict verdict;
    const char *name;
    const char *detail; // what is so, whatever the verdict
};

// --- checks ---

static struct finding check_loop(const struct http_view *view)
{
    bool is_late = view->since_turn_ns > LOOP_LIMIT_NS;

    return (struct finding){is_late ? FAIL : PASS, "loop",
                            is_late ? "no decision for 10 s" : "decides"};
}

static struct finding check_install(const struct http_view *view)
{
    return (struct finding){view->install_error ? FAIL : PASS, "metafence-run-copy",
                            view->install_error ? view->install_error : "in place"};
}

// Without metafence-run nobody can say how meta is. A guard that is badly installed or
// restarting is no outage: the pod stays ready, meta's own probes speak for meta.
static struct finding check_guard(const struct http_view *view)
{
    if (!view->is_fence_known)
        return (struct finding){WARN, "guard", "not connected to what guards meta"};
    if (view->is_fence_silent)
        return (struct finding){WARN, "guard", "what guards meta does not answer"};
    return (struct finding){PASS, "guard", "connected"};
}

static struct finding check_meta_up(const struct http_view *view)
{
    if (!view->is_fence_known)
        return (struct finding){WARN, "meta-up", "not known"};
    if (view->is_meta_alive)
        return (struct finding){PASS, "meta-up", "runs"};
    if (view->is_meta_stopped)
        return (struct finding){FAIL, "meta-up", "meta was stopped"};
    return (struct finding){FAIL, "meta-up", view->hold[0] ? view->hold : "meta is down"};
}

static struct finding check_may_live(const struct http_view *view)
{
    if (!view->has_to_die)
        return (struct finding){PASS, "meta-may-live", "nobody has to die"};
    return (struct finding){FAIL, "meta-may-live",
                            view->is_not_fenced
                                ? "NotFenced: meta has to be dead and is not"
                                : "meta has to be dead: its death is not confirmed yet"};
}

static struct finding check_leader(const struct http_view *view)
{
    if (!view->is_leader)
        return (struct finding){FAIL, "leader", "not the leader"};
    if (view->has_to_die || !view->has_deadline || view->deadline_left_ns <= 0)
        return (struct finding){FAIL, "leader", "leads without proof"};
    return (struct finding){PASS, "leader", "leads with proof"};
}

static struct finding check_follower(const struct http_view *view)
{
    bool is_follower = view->is_follower && !view->has_to_die;

    return (struct finding){is_follower ? PASS : FAIL, "follower",
                            is_follower ? "follows" : "not a follower"};
}

// A warning at most: neither Postgres nor a reason for doubt makes a pod unhealthy.
static struct finding check_database(const struct http_view *view)
{
    return (struct finding){view->does_database_answer ? PASS : WARN, "postgres",
                            view->database};
}

static struct finding check_sessions(const struct http_view *view)
{
    bool is_left = view->is_not_fenced && !view->has_to_die;

    return (struct finding){is_left ? WARN : PASS, "sessions",
                            is_left ? "NotFenced: meta is dead, its sessions are not gone"
                                    : "none of a dead meta"};
}

static struct finding check_covered(const struct http_view *view)
{
    return (struct finding){view->is_covered ? PASS : WARN, "covered",
                            view->is_covered ? "a second leader is excluded"
                                             : "see not_covered of metafence status"};
}

static struct finding check_config(const struct http_view *view)
{
    return (struct finding){view->is_config_valid ? PASS : WARN, "config",
                            view->is_config_valid ? "valid" : "the file is not valid"};
}

// The first check of an endpoint that is worse than the others gives the reason.
static const struct endpoint {
    const char *path;
    struct finding (*checks[CHECKS_MAX])(const struct http_view *view);
} endpoints[] = {
    {"/livez", {check_loop}},
    {"/startupz", {check_install}},
    {"/readyz", {check_may_live, check_guard, check_meta_up}},
    {"/meta/livez", {check_may_live}},
    {"/leader", {check_leader}},
    {"/replica", {check_follower}},
    {"/health",
     {check_may_live, check_guard, check_sessions, check_covered, check_database,
      check_config}},
};

// --- bodies ---

static void put_text(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_json(out, value);
}

static void put_ms(struct buf *out, const char *key, bool is_known, int64_t ns)
{
    if (is_known)
        buf_printf(out, ",\"%s\":%" PRId64, key, ns / NS_PER_MS);
    else
        buf_printf(out, ",\"%s\":null", key);
}

static void put_findings(const struct finding *findings, size_t count, struct buf *out)
{
    static const char *const words[] = {[PASS] = "ok", [WARN] = "warning", [FAIL] = "failed"};

    buf_puts(out, ",\"checks\":[");
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s{\"name\":\"%s\",\"result\":\"%s\"", i ? "," : "", findings[i].name,
                   words[findings[i].verdict]);
        put_text(out, "detail", findings[i].detail);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

// Role, leader and the age of the proof come from one moment, so that they never contradict
// each other.
static void put_view(const struct http_view *view, struct buf *out)
{
    put_text(out, "role", view->role);
    put_text(out, "rule", view->rule);
    put_text(out, "leader", view->leader);
    if (view->is_term_known)
        buf_printf(out, ",\"term\":%" PRIu64, view->term);
    else
        buf_puts(out, ",\"term\":null");
    put_ms(out, "proof_age_ms", view->is_row_known, view->proof_age_ns);
    put_ms(out, "deadline_ms_left", view->has_deadline, view->deadline_left_ns);
    put_text(out, "postgres", view->database);
}

// One word for people.
static const char *health_word(const struct http_view *view, enum verdict worst)
{
    if (view->has_to_die)
        return view->is_not_fenced ? "not-fenced" : "fencing";
    if (view->is_fence_known && !view->is_meta_alive)
        return view->hold[0] ? "held" : "down";
    return worst == PASS ? "ok" : "degraded";
}

static int answer(const struct http_view *view, const struct endpoint *endpoint,
                  bool is_verbose, struct buf *body)
{
    struct finding findings[CHECKS_MAX] = {{PASS, "", ""}};
    const struct finding *worst = &findings[0];
    bool is_health = strcmp(endpoint->path, "/health") == 0;
    size_t count = 0;
    const char *word = NULL;

    for (; count < CHECKS_MAX && endpoint->checks[count]; count++) {
        findings[count] = endpoint->checks[count](view);
        if (findings[count].verdict > worst->verdict)
            worst = &findings[count];
    }
    word = worst->verdict == FAIL ? "failed" : (worst->verdict == WARN ? "warning" : "ok");
    buf_printf(body, "{\"status\":\"%s\"",
               is_health ? health_word(view, worst->verdict) : word);
    put_text(body, "reason", worst->verdict == PASS ? "" : worst->detail);
    put_view(view, body);
    if (is_verbose)
        put_findings(findings, count, body);
    buf_puts(body, "}\n");
    return worst->verdict == FAIL ? 503 : 200;
}

static bool has_verbose(struct httphead_text query)
{
    static const char word[] = "verbose";
    const size_t len = sizeof(word) - 1;

    for (size_t at = 0; at < query.len;) {
        const char *start = query.data + at;
        const char *end = memchr(start, '&', query.len - at);
        size_t part = end ? (size_t)(end - start) : query.len - at;

        if (part >= len && memcmp(start, word, len) == 0 && (part == len || start[len] == '='))
            return true;
        at += part + 1;
    }
    return false;
}

int http_answer(const struct http_view *view, struct httphead_text path,
                struct httphead_text query, struct buf *body)
{
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
        if (httphead_text_is(path, endpoints[i].path))
            return answer(view, &endpoints[i], has_verbose(query), body);
    if (httphead_text_is(path, "/version")) {
        buf_puts(body, "{\"version\":\"" METAFENCE_VERSION "\"}\n");
        return 200;
    }
    buf_puts(body, "{\"error\":\"no such path\",\"paths\":[");
    for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
        buf_printf(body, "\"%s\",", endpoints[i].path);
    buf_puts(body, "\"/version\",\"/metrics\"]}\n");
    return 404;
}
