// SPDX-License-Identifier: Apache-2.0
// recover, handover: gives the order to the leader's agent, then says for what it waits until
// it has ended. What was ordered and not seen to end is not confirmed, never failed.
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/client.h"
#include "agent/cli/output.h"
#include "base/clock.h"

#define LOOK_EVERY_MS 100
#define ASK_NS        (2 * NS_PER_SEC)

struct verb {
    const char *command;
    const char *would;
    const char *done;
};

struct watch {
    const struct cli_args *args;
    const struct verb *verb;
    const char *socket;
    double id; // of the order
    struct instant began;
    char said[200]; // the last line of progress
    double said_s;  // since `began`
};

static bool is_for_people(const struct cli_args *args)
{
    return args->output == CLI_TABLE || args->output == CLI_WIDE;
}

// "mv (job 7, 4.2 s), …" of those in the list, each once; a dropped job has an entry for each
// of its fragments.
static void put_jobs(const cJSON *list, const char *what, struct buf *out)
{
    double last = -1;
    const cJSON *item = NULL;

    cJSON_ArrayForEach(item, list)
    {
        double job = client_number(item, "job", 0);
        const char *name = client_text(item, "name");

        if (job == last)
            continue;
        if (last < 0)
            buf_printf(out, "%s%s: ", out->len ? "; " : "", what);
        buf_printf(out, "%s%s (job %.0f, %.1f s)", last < 0 ? "" : ", ",
                   name[0] ? name : "without a name", job,
                   client_number(item, "age_ms", 0) / 1000);
        last = job;
    }
}

// What is dropped or being created now; "" for nothing.
static void put_pending(const cJSON *status, struct buf *out)
{
    put_jobs(client_get(status, "recovery.dropped"), "dropped", out);
    put_jobs(client_get(status, "recovery.creating"), "being created", out);
}

// A line for each change of what it waits for, and each second of a wait for jobs. Results
// alone go to standard output where a program reads it.
static void say_progress(struct watch *watch, const cJSON *status, const cJSON *request)
{
    FILE *to = is_for_people(watch->args) ? stdout : stderr;
    const char *step = client_text(request, "step");
    double now_s = (double)instant_since(clock_now(), watch->began) / 1e9;
    bool is_draining = strcmp(step, "DRAIN") == 0;
    struct buf pending = {0};
    char text[sizeof(watch->said)];

    (void)snprintf(text, sizeof(text), "%s: waits for %s", step,
                   client_text(request, "waits_for"));
    if (strcmp(step, "IDLE") == 0 ||
        (strcmp(text, watch->said) == 0 && (!is_draining || now_s < watch->said_s + 1)))
        return;
    memcpy(watch->said, text, sizeof(text));
    watch->said_s = now_s;
    if (is_draining || client_is_true(request, "gave_up_waiting"))
        put_pending(status, &pending);
    (void)fprintf(to, "%6.1fs  %s%s%s%s\n", now_s, text, pending.len ? ": " : "",
                  is_draining || !pending.len ? "" : "not waited for: ", buf_str(&pending));
    (void)fflush(to);
    buf_done(&pending);
}

static enum cli_exit exit_of(const cJSON *request)
{
    const char *result = client_text(request, "result");

    if (strcmp(result, "done") == 0)
        return CLI_DONE;
    return strcmp(result, "failed") == 0 ? CLI_FAILED : CLI_NOT_CONFIRMED;
}

static void print_end(const struct watch *watch, const cJSON *request, const char *why)
{
    enum cli_exit end = why[0] ? CLI_NOT_CONFIRMED : exit_of(request);
    cJSON *out = NULL;

    if (!is_for_people(watch->args)) {
        out = request ? cJSON_Duplicate(request, true) : cJSON_CreateObject();
        if (!request)
            (void)cJSON_AddStringToObject(out, "command", watch->verb->command);
        (void)cJSON_AddBoolToObject(out, "confirmed", end == CLI_DONE);
        if (why[0])
            (void)cJSON_AddStringToObject(out, "missing", why);
        output_print(watch->args->output, out);
        cJSON_Delete(out);
    } else if (end == CLI_DONE) {
        (void)printf("%s (%.1f s)\n", watch->verb->done,
                     client_number(request, "took_ms", 0) / 1000);
    } else {
        cli_complain("%s: %s: %s", watch->verb->command,
                     end == CLI_FAILED ? "not done" : "ordered, but not confirmed",
                     why[0] ? why : client_text(request, "detail"));
    }
}

// One look at the status. Returns true when there is nothing more to be seen: the order has
// ended, or its agent has forgotten it, which *why then says.
static bool look(struct watch *watch, cJSON **ret_status, const cJSON **ret_request, char *why,
                 size_t size)
{
    struct err err = {0};
    const cJSON *request = NULL;

    *ret_request = NULL;
    if (client_ask(watch->socket, "{\"cmd\":\"status\"}\n", ASK_NS, ret_status, &err) < 0) {
        (void)snprintf(why, size, "%s", err.msg);
        return false; // it may come back
    }
    request = client_get(*ret_status, "request");
    if (!request || client_number(request, "id", -1) != watch->id) {
        (void)snprintf(why, size,
                       "the agent does not know the order any more: it was "
                       "restarted, or was given another one");
        return true;
    }
    *ret_request = request;
    if (client_text(request, "result")[0])
        return true;
    say_progress(watch, *ret_status, request);
    (void)snprintf(why, size, "%s", watch->said[0] ? watch->said : "it has not begun");
    return false;
}

// Until the order has ended, its agent has forgotten it, or the time is over.
static int watch_order(struct watch *watch, struct instant deadline)
{
    for (;;) {
        cJSON *status = NULL;
        const cJSON *request = NULL;
        char why[256] = "";
        bool is_over = look(watch, &status, &request, why, sizeof(why));

        if (is_over || instant_reached(clock_now(), deadline)) {
            int result = why[0] ? CLI_NOT_CONFIRMED : (int)exit_of(request);

            print_end(watch, request, why);
            cJSON_Delete(status);
            return result;
        }
        cJSON_Delete(status);
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

// Returns the order's number, or -1 after saying why there is none.
static double send_order(const struct cli_args *args, const struct verb *verb,
                         const char *socket)
{
    struct buf line = {0};
    struct err err = {0};
    cJSON *answer = NULL;
    char wait[32];
    double id = -1;

    (void)duration_format(args->wait_ns, wait, sizeof(wait));
    client_request(&line, verb->command, args->reason, "wait", wait);
    if (client_ask(socket, buf_str(&line), ASK_NS, &answer, &err) < 0)
        cli_complain("%s: %s", verb->command, err.msg);
    else if (!client_is_true(answer, "ok"))
        cli_complain("%s: refused: %s", verb->command, client_text(answer, "error"));
    else
        id = client_number(answer, "request", -1);
    cJSON_Delete(answer);
    buf_done(&line);
    return id;
}

static void print_try(const struct cli_args *args, const struct verb *verb, const cJSON *status)
{
    cJSON *out = cJSON_CreateObject();
    struct buf pending = {0};

    put_pending(status, &pending);
    (void)cJSON_AddStringToObject(out, "command", verb->command);
    (void)cJSON_AddStringToObject(out, "would", verb->would);
    (void)cJSON_AddStringToObject(out, "id", client_text(status, "id"));
    (void)cJSON_AddStringToObject(out, "role", client_text(status, "role"));
    (void)cJSON_AddStringToObject(out, "pending", buf_str(&pending));
    if (is_for_people(args))
        (void)printf("%s, role %s: would wait for %s, then %s\n", client_text(status, "id"),
                     client_text(status, "role"), pending.len ? buf_str(&pending) : "nothing",
                     verb->would);
    else
        output_print(args->output, out);
    buf_done(&pending);
    cJSON_Delete(out);
}

// What is there now. Nothing is ordered.
static int try_order(const struct cli_args *args, const struct verb *verb, const char *socket)
{
    struct err err = {0};
    cJSON *status = NULL;

    if (client_ask(socket, "{\"cmd\":\"status\"}\n", ASK_NS, &status, &err) < 0) {
        cli_complain("%s: %s", verb->command, err.msg);
        return CLI_FAILED;
    }
    print_try(args, verb, status);
    cJSON_Delete(status);
    return CLI_DONE;
}

static int run_verb(const struct cli_args *args, const struct verb *verb)
{
    char path[128];
    struct watch watch = {.args = args, .verb = verb, .began = clock_now()};
    int64_t bound_ns = args->wait_ns + args->timeout_ns;

    watch.socket = cli_socket(args, path, sizeof(path));
    if (args->is_dry_run)
        return try_order(args, verb, watch.socket);
    watch.id = send_order(args, verb, watch.socket);
    if (watch.id < 0)
        return CLI_FAILED;
    return watch_order(&watch, instant_add(watch.began, bound_ns));
}

int cli_recover(const struct cli_args *args)
{
    static const struct verb verb = {"recover", "have meta recover globally",
                                     "recovered: compute nodes have reset, jobs run again"};

    return run_verb(args, &verb);
}

int cli_handover(const struct cli_args *args)
{
    static const struct verb verb = {
        "handover", "kill meta and hold its start until another one leads",
        "handed over: another meta leads, the old one comes back as a follower"};

    return run_verb(args, &verb);
}
