// SPDX-License-Identifier: Apache-2.0
// fence, unfence, pause, resume: sends the order, then watches the agent's status until it is
// carried out. An order that was sent and not seen to be carried out in time is not confirmed,
// never failed.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"
#include "base/clock.h"

#define LOOK_EVERY_MS 20
#define ASK_NS        (2 * NS_PER_SEC)

// Judges a status: NULL when the order is carried out, else what is still missing.
typedef const char *order_check(const cJSON *status);

struct order {
    const char *command;
    const char *duration; // of a pause
    const char *done;     // sentence for the table output
    const char *would;    // the same of a dry run
    order_check *check;
};

static const char *check_fenced(const cJSON *status)
{
    if (client_is_true(status, "fenced.confirmed"))
        return NULL;
    return client_text(status, "fenced.why");
}

static const char *check_connected(const cJSON *status)
{
    return client_is_true(status, "fence.connected")
               ? NULL
               : "the agent has no connection to metafence-run";
}

static const char *check_released(const cJSON *status)
{
    if (check_connected(status))
        return check_connected(status);
    return client_is_true(status, "meta.manual") ? "metafence-run still holds meta down" : NULL;
}

static const char *check_paused(const cJSON *status)
{
    if (check_connected(status))
        return check_connected(status);
    return client_is_true(status, "meta.paused") ? NULL : "metafence-run has not paused yet";
}

static const char *check_resumed(const cJSON *status)
{
    if (check_connected(status))
        return check_connected(status);
    return client_is_true(status, "meta.paused") ? "metafence-run is still paused" : NULL;
}

// Waits, but no longer than until `deadline`.
static void pause_a_moment(struct instant deadline)
{
    int64_t left_ms = instant_since(deadline, clock_now()) / NS_PER_MS;

    if (left_ms > 0)
        (void)poll(NULL, 0, left_ms < LOOK_EVERY_MS ? (int)left_ms : LOOK_EVERY_MS);
}

struct outcome {
    enum cli_exit result;
    cJSON *status; // the last answer, or NULL
    int64_t took_ns;
    char missing[256]; // "" when the order is carried out
};

// Asks for the status until the order's check is content.
static void watch_order(const char *socket, const struct order *order, struct instant deadline,
                        struct outcome *ret)
{
    struct err err = {0};

    for (;;) {
        cJSON *status = NULL;
        const char *missing = err.msg;

        if (client_ask(socket, "{\"cmd\":\"status\"}\n", ASK_NS, &status, &err) == 0)
            missing = order->check(status);
        if (!missing || instant_reached(clock_now(), deadline)) {
            (void)snprintf(ret->missing, sizeof(ret->missing), "%s", missing ? missing : "");
            ret->status = status;
            ret->result = missing ? CLI_NOT_CONFIRMED : CLI_DONE;
            return;
        }
        cJSON_Delete(status);
        pause_a_moment(deadline);
    }
}

static void print_object(enum cli_output form, const struct order *order,
                         const struct outcome *outcome)
{
    static const char *const copied[] = {"role",   "rule", "paused_until",
                                         "fenced", "meta", "last_fence"};
    cJSON *out = cJSON_CreateObject();

    (void)cJSON_AddStringToObject(out, "command", order->command);
    (void)cJSON_AddBoolToObject(out, "confirmed", outcome->result == CLI_DONE);
    (void)cJSON_AddNumberToObject(out, "took_ms", (double)outcome->took_ns / 1e6);
    if (outcome->missing[0])
        (void)cJSON_AddStringToObject(out, "missing", outcome->missing);
    for (size_t i = 0; outcome->status && i < sizeof(copied) / sizeof(copied[0]); i++) {
        const cJSON *item = client_get(outcome->status, copied[i]);

        if (item)
            (void)cJSON_AddItemToObject(out, copied[i], cJSON_Duplicate(item, true));
    }
    output_print(form, out);
    cJSON_Delete(out);
}

static void print_table(const struct order *order, const struct outcome *outcome)
{
    if (outcome->result == CLI_DONE)
        (void)printf("%s (%lld ms)\n", order->done, (long long)(outcome->took_ns / NS_PER_MS));
    else
        cli_complain("%s: ordered, but not confirmed: %s", order->command, outcome->missing);
}

static int send_order(const struct cli_args *args, const struct order *order,
                      const char *socket)
{
    struct buf request = {0};
    struct err err = {0};
    cJSON *answer = NULL;
    bool is_ok = false;

    client_request(&request, order->command, args->reason, "for", order->duration);
    if (client_ask(socket, buf_str(&request), ASK_NS, &answer, &err) < 0)
        cli_complain("%s: %s", order->command, err.msg);
    else if (!client_is_true(answer, "ok"))
        cli_complain("%s: refused: %s", order->command, client_text(answer, "error"));
    else
        is_ok = true;
    cJSON_Delete(answer);
    buf_done(&request);
    return is_ok ? 0 : -1;
}

// What is there now, and what would be done about it. Nothing is ordered.
static int try_order(const struct cli_args *args, const struct order *order, const char *socket)
{
    struct err err = {0};
    cJSON *status = NULL;
    cJSON *out = NULL;

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", args->timeout_ns, &status, &err) < 0) {
        cli_complain("%s: %s", order->command, err.msg);
        return CLI_FAILED;
    }
    out = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(out, "command", order->command);
    (void)cJSON_AddStringToObject(out, "would", order->would);
    (void)cJSON_AddStringToObject(out, "id", client_text(status, "id"));
    (void)cJSON_AddStringToObject(out, "role", client_text(status, "role"));
    (void)cJSON_AddNumberToObject(out, "pid", client_number(status, "meta.pid", 0));
    if (args->output == CLI_TABLE || args->output == CLI_WIDE)
        (void)printf("%s, role %s, pid %.0f: would %s\n", client_text(status, "id"),
                     client_text(status, "role"), client_number(status, "meta.pid", 0),
                     order->would);
    else
        output_print(args->output, out);
    cJSON_Delete(out);
    cJSON_Delete(status);
    return CLI_DONE;
}

static int run_order(const struct cli_args *args, const struct order *order)
{
    struct instant begin = clock_now();
    struct outcome outcome = {0};
    char path[128];
    const char *socket = cli_socket(args, path, sizeof(path));

    if (args->is_dry_run)
        return try_order(args, order, socket);
    if (send_order(args, order, socket) < 0)
        return CLI_FAILED;
    watch_order(socket, order, instant_add(begin, args->timeout_ns), &outcome);
    outcome.took_ns = instant_since(clock_now(), begin);
    if (args->output == CLI_TABLE || args->output == CLI_WIDE)
        print_table(order, &outcome);
    else
        print_object(args->output, order, &outcome);
    cJSON_Delete(outcome.status);
    return (int)outcome.result;
}

int cli_fence(const struct cli_args *args)
{
    static const struct order order = {
        "fence", NULL, "fenced: meta is dead, proven, and stays down until `metafence unfence`",
        "kill meta and keep it down until `metafence unfence`", check_fenced};

    return run_order(args, &order);
}

int cli_unfence(const struct cli_args *args)
{
    static const struct order order = {"unfence", NULL, "released: meta may start again",
                                       "let meta start again", check_released};

    return run_order(args, &order);
}

int cli_pause(const struct cli_args *args)
{
    char text[32];
    char done[96];
    struct order order = {"pause", text, done, "kill nothing for the time", check_paused};

    if (args->for_ns == 0) {
        cli_complain("pause: for how long? write --for 30m");
        return CLI_USAGE;
    }
    if (args->for_ns < NS_PER_SEC || args->for_ns > 24 * 60 * 60 * NS_PER_SEC) {
        cli_complain("pause: --for must be from 1s to 24h");
        return CLI_USAGE;
    }
    (void)duration_format(args->for_ns, text, sizeof(text));
    (void)snprintf(done, sizeof(done),
                   "paused: nothing is killed for %s, and nothing protects meanwhile", text);
    return run_order(args, &order);
}

int cli_resume(const struct cli_args *args)
{
    static const struct order order = {"resume", NULL, "resumed: meta is guarded again",
                                       "guard meta again", check_resumed};

    return run_order(args, &order);
}
