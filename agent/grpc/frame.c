// SPDX-License-Identifier: Apache-2.0
#include "agent/grpc/frame.h"

#include <string.h>
#include <strings.h>

#include "meta.pb-c.h"

#define GRPC_STATUS_HIGHEST   16
#define GRPC_STATUS_DUPLICATE (-2)

// If the line is "name: value", *ret_value gets the trimmed value.
static bool split_header(const char *line, size_t len, const char *name, const char **ret_value,
                         size_t *ret_len)
{
    size_t name_len = strlen(name);

    if (len <= name_len || strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
        return false;
    line += name_len + 1;
    len -= name_len + 1;
    while (len > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        len--;
    }
    while (len > 0 && strchr("\r\n \t", line[len - 1]))
        len--;
    *ret_value = line;
    *ret_len = len;
    return true;
}

static int parse_status(const char *value, size_t len)
{
    int status = 0;

    if (len == 0 || len > 2)
        return GRPC_STATUS_MISSING;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return GRPC_STATUS_MISSING;
        status = status * 10 + (value[i] - '0');
    }
    return status <= GRPC_STATUS_HIGHEST ? status : GRPC_STATUS_MISSING;
}

static bool is_grpc_type(const char *value, size_t len)
{
    static const char type[] = "application/grpc";
    size_t type_len = sizeof(type) - 1;

    if (len < type_len || strncasecmp(value, type, type_len) != 0)
        return false;
    return len == type_len || strchr("+; ", value[type_len]);
}

// Percent-encoded by the protocol, so that it is one word to a log already.
static void take_message(struct grpc_reply *reply, const char *value, size_t len)
{
    if (len >= sizeof(reply->message))
        len = sizeof(reply->message) - 1;
    for (size_t i = 0; i < len; i++)
        reply->message[i] = value[i] >= ' ' && value[i] < 0x7f ? value[i] : '?';
    reply->message[len] = '\0';
}

void grpc_reply_header(struct grpc_reply *reply, const char *line, size_t len)
{
    const char *value = NULL;
    size_t value_len = 0;

    if (split_header(line, len, "grpc-status", &value, &value_len)) {
        if (reply->grpc_status == GRPC_STATUS_MISSING)
            reply->grpc_status = parse_status(value, value_len);
        else
            reply->grpc_status = GRPC_STATUS_DUPLICATE;
    } else if (split_header(line, len, "content-type", &value, &value_len)) {
        reply->is_grpc = is_grpc_type(value, value_len);
    } else if (split_header(line, len, "grpc-message", &value, &value_len)) {
        take_message(reply, value, value_len);
    }
}

int grpc_frame_message(const uint8_t *body, size_t len, const uint8_t **ret_message,
                       size_t *ret_len, struct err *err)
{
    uint32_t message_len = 0;

    if (len < GRPC_FRAME_HEADER)
        return err_set(err, ERR_INVALID, 0, "gRPC frame of %zu bytes has no whole header", len);
    if (body[0] != 0)
        return err_set(err, ERR_INVALID, 0, "gRPC frame has flag %u: we asked for plain frames",
                       body[0]);
    message_len = (uint32_t)body[1] << 24 | (uint32_t)body[2] << 16 | (uint32_t)body[3] << 8 |
                  (uint32_t)body[4];
    if (message_len != len - GRPC_FRAME_HEADER)
        return err_set(err, ERR_INVALID, 0, "gRPC frame says %u bytes, the body has %zu",
                       message_len, len - GRPC_FRAME_HEADER);
    *ret_message = body + GRPC_FRAME_HEADER;
    *ret_len = message_len;
    return 0;
}

enum grpc_answer grpc_judge_status(const struct grpc_reply *reply, int *ret_status)
{
    Meta__GetClusterRecoveryStatusResponse *response = NULL;
    const uint8_t *message = NULL;
    size_t len = 0;
    struct err err = {0};

    *ret_status = 0;
    if (reply->http_status != 200 || !reply->is_grpc)
        return GRPC_UNKNOWN;
    if (reply->grpc_status == GRPC_STATUS_UNIMPLEMENTED)
        return GRPC_FOLLOWING;
    if (reply->grpc_status != GRPC_STATUS_OK ||
        grpc_frame_message(reply->body, reply->body_len, &message, &len, &err) < 0)
        return GRPC_UNKNOWN;
    response = meta__get_cluster_recovery_status_response__unpack(NULL, len, message);
    if (!response)
        return GRPC_UNKNOWN;
    *ret_status = (int)response->status;
    meta__get_cluster_recovery_status_response__free_unpacked(response, NULL);
    return GRPC_LEADING;
}
