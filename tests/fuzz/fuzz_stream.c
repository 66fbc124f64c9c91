// SPDX-License-Identifier: Apache-2.0
// A watch's stream: the objects are the same wherever the bytes are cut. The first byte of the
// input says how.
#include <cjson/cJSON.h>

#include "k8s/internal.h"
#include "tests/fuzz/fuzz.h"

struct seen {
    unsigned lines;
    uint64_t sum;
    bool is_bad;
};

static void on_line(const struct cJSON *object, void *arg)
{
    struct seen *seen = arg;
    char *text = cJSON_PrintUnformatted(object);

    assert(cJSON_IsObject(object));
    seen->lines++;
    for (const char *p = text; p && *p; p++)
        seen->sum = seen->sum * 31 + (unsigned char)*p;
    cJSON_free(text);
}

static const struct k8s_stream_ops ops = {.on_line = on_line};

static void feed(const uint8_t *data, size_t size, size_t piece, struct seen *seen)
{
    struct k8s_request request = {.ops = &ops, .arg = seen};
    struct err err = {0};

    for (size_t at = 0; at < size && !seen->is_bad; at += piece) {
        size_t len = size - at < piece ? size - at : piece;

        buf_append(&request.answer, data + at, len);
        seen->is_bad = k8s_request_deliver(&request, &err) == LINES_BAD;
    }
    if (seen->is_bad)
        fuzz_check_refusal(&err);
    else
        assert(!request.answer.len || !memchr(request.answer.data, '\n', request.answer.len));
    buf_done(&request.answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {0};
    struct seen pieces = {0};

    if (size == 0)
        return 0;
    feed(data + 1, size - 1, size, &whole);
    feed(data + 1, size - 1, 1U + data[0] % 64U, &pieces);
    if (fuzz_lacks_memory)
        return 0;
    assert(whole.lines == pieces.lines && whole.sum == pieces.sum);
    assert(whole.is_bad == pieces.is_bad);
    return 0;
}
