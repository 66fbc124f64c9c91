// SPDX-License-Identifier: Apache-2.0
#include "agent/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/lines.h"

#define CONNECTIONS_MAX 128
#define UNSENT_MAX      (512 * 1024) // a status with its history has some 30 kB
#define IDLE_NS         (30 * NS_PER_SEC)
#define NO_WAIT         INT64_C(-1) // none was given

struct control {
    struct lines_server *server;
    control_fn *fn;
    void *arg;
    struct buf answer;
};

static const char *const command_names[] = {"status",   "fence",     "unfence", "pause",
                                            "resume",   "reconcile", "report",  "recover",
                                            "handover", "metrics",   "config"};
#define COMMAND_COUNT (sizeof(command_names) / sizeof(command_names[0]))

const char *control_command_name(enum control_command command)
{
    return command_names[command];
}

static int take_command(const cJSON *item, struct control_request *request, struct err *err)
{
    if (!cJSON_IsString(item))
        return err_set(err, ERR_INVALID, 0, "\"cmd\" must be a string");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(item->valuestring, command_names[i]) == 0) {
            request->command = (enum control_command)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, 0,
                   "unknown command: use status, fence, unfence, pause, resume, reconcile, "
                   "report, recover, handover, metrics or config");
}

static int take_reason(const cJSON *item, struct control_request *request, struct err *err)
{
    size_t len = 0;

    if (!cJSON_IsString(item))
        return err_set(err, ERR_INVALID, 0, "\"reason\" must be a string");
    len = strlen(item->valuestring);
    if (len >= sizeof(request->reason))
        return err_set(err, ERR_INVALID, 0, "\"reason\" has %zu bytes: at most %zu", len,
                       sizeof(request->reason) - 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)item->valuestring[i];

        request->reason[i] = c < 0x20 || c == 0x7f ? ' ' : item->valuestring[i];
    }
    request->reason[len] = '\0';
    return 0;
}

static int take_pause(const cJSON *item, struct control_request *request, struct err *err)
{
    if (!cJSON_IsString(item))
        return err_set(err, ERR_INVALID, 0, "\"for\" must be a duration like \"30m\"");
    if (duration_parse(item->valuestring, &request->pause_ns, err) < 0)
        return err_wrap(err, "\"for\"");
    if (request->pause_ns < CONTROL_PAUSE_MIN_NS || request->pause_ns > CONTROL_PAUSE_MAX_NS)
        return err_set(err, ERR_INVALID, 0, "\"for\" must be from 1s to 24h");
    return 0;
}

static int take_wait(const cJSON *item, struct control_request *request, struct err *err)
{
    if (!cJSON_IsString(item))
        return err_set(err, ERR_INVALID, 0, "\"wait\" must be a duration like \"60s\"");
    if (duration_parse(item->valuestring, &request->wait_ns, err) < 0)
        return err_wrap(err, "\"wait\"");
    if (request->wait_ns < 0 || request->wait_ns > CONTROL_WAIT_MAX_NS)
        return err_set(err, ERR_INVALID, 0, "\"wait\" must be from 0s to 1h");
    return 0;
}

static int take_dry(const cJSON *item, struct control_request *request, struct err *err)
{
    if (!cJSON_IsBool(item))
        return err_set(err, ERR_INVALID, 0, "\"dry\" must be true or false");
    request->is_dry = cJSON_IsTrue(item);
    return 0;
}

static int take_member(const cJSON *item, struct control_request *request, struct err *err)
{
    if (strcmp(item->string, "cmd") == 0)
        return take_command(item, request, err);
    if (strcmp(item->string, "reason") == 0)
        return take_reason(item, request, err);
    if (strcmp(item->string, "for") == 0)
        return take_pause(item, request, err);
    if (strcmp(item->string, "wait") == 0)
        return take_wait(item, request, err);
    if (strcmp(item->string, "dry") == 0)
        return take_dry(item, request, err);
    return err_set(err, ERR_INVALID, 0,
                   "unknown member: only cmd, reason, for, wait and dry are known");
}

// What belongs to some commands alone; and the default of what was not given.
static int check_members(struct control_request *request, struct err *err)
{
    enum control_command command = request->command;
    bool takes_wait = command == CONTROL_RECOVER || command == CONTROL_HANDOVER;

    if (command == CONTROL_PAUSE && request->pause_ns == 0)
        return err_set(err, ERR_INVALID, 0, "pause needs \"for\", like \"for\":\"30m\"");
    if (command != CONTROL_RECONCILE && request->is_dry)
        return err_set(err, ERR_INVALID, 0, "\"dry\" belongs to reconcile alone");
    if (command != CONTROL_PAUSE && request->pause_ns != 0)
        return err_set(err, ERR_INVALID, 0, "\"for\" belongs to pause alone");
    if (!takes_wait && request->wait_ns != NO_WAIT)
        return err_set(err, ERR_INVALID, 0, "\"wait\" belongs to recover and handover");
    if (request->wait_ns == NO_WAIT)
        request->wait_ns = takes_wait ? CONTROL_WAIT_NS : 0;
    return 0;
}

static int take_object(const cJSON *object, struct control_request *request, struct err *err)
{
    const cJSON *item = NULL;
    bool has_command = false;

    if (!cJSON_IsObject(object))
        return err_set(err, ERR_INVALID, 0, "a request is an object like {\"cmd\":\"status\"}");
    cJSON_ArrayForEach(item, object)
    {
        for (const cJSON *other = item->next; other; other = other->next)
            if (strcmp(item->string, other->string) == 0)
                return err_set(err, ERR_INVALID, 0, "a member is given twice");
        if (take_member(item, request, err) < 0)
            return -1;
        has_command = has_command || strcmp(item->string, "cmd") == 0;
    }
    if (!has_command)
        return err_set(err, ERR_INVALID, 0, "\"cmd\" is missing");
    return check_members(request, err);
}

int control_parse(const char *line, size_t len, struct control_request *ret, struct err *err)
{
    struct control_request request = {.wait_ns = NO_WAIT};
    const char *end = NULL;
    cJSON *object = NULL;
    int r = 0;

    if (memchr(line, '\0', len))
        return err_set(err, ERR_INVALID, 0, "a NUL byte is not JSON");
    object = cJSON_ParseWithLengthOpts(line, len, &end, false);
    if (!object)
        return err_set(err, ERR_INVALID, 0,
                       "not JSON: send one object a line, like "
                       "{\"cmd\":\"status\"}");
    while (end < line + len && strchr(" \t\r", *end))
        end++;
    if (end != line + len)
        r = err_set(err, ERR_INVALID, 0, "one object a line: there is more behind it");
    else
        r = take_object(object, &request, err);
    cJSON_Delete(object);
    if (r == 0)
        *ret = request;
    return r;
}

static void on_line(struct lines_conn *conn, const char *line, size_t len, void *arg)
{
    struct control *control = arg;
    struct control_request request;
    struct err err = {0};

    buf_clear(&control->answer);
    if (control_parse(line, len, &request, &err) == 0) {
        request.peer_uid = lines_peer_uid(conn);
        control->fn(&request, &control->answer, control->arg);
    } else {
        buf_puts(&control->answer, "{\"ok\":false,\"error\":");
        buf_put_json(&control->answer, err.msg);
        buf_putc(&control->answer, '}');
    }
    buf_putc(&control->answer, '\n');
    lines_send(conn, control->answer.data, control->answer.len);
    buf_done(&control->answer); // rare and large: not worth keeping
}

int control_new(struct loop *loop, const struct control_config *config,
                struct control **ret_control, struct err *err)
{
    struct control *control = calloc(1, sizeof(*control));
    struct lines_config lines = {
        .path = config->path,
        .mode = 0600,
        .max_conns = CONNECTIONS_MAX,
        .max_line = CONTROL_LINE_MAX,
        .max_unsent = UNSENT_MAX,
        .idle_ns = IDLE_NS,
        .on_line = on_line,
        .arg = control,
    };

    if (!control)
        abort();
    control->fn = config->fn;
    control->arg = config->arg;
    if (lines_server_new(loop, &lines, &control->server, err) < 0) {
        free(control);
        return err_wrap(err, "control socket");
    }
    *ret_control = control;
    return 0;
}

void control_free(struct control *control)
{
    if (!control)
        return;
    lines_server_free(control->server);
    buf_done(&control->answer);
    free(control);
}
