// SPDX-License-Identifier: Apache-2.0
// What stands in the log that somebody pipes into `logs pretty`, and texts that secrets are
// taken out of.
#include <string.h>

#include "agent/cli/logline.h"
#include "agent/cli/redact.h"
#include "tests/fuzz/fuzz.h"

static void check_slice(const struct logline_text *text, const char *data, size_t size)
{
    assert(text->data >= data && text->data + text->len <= data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct redact redact = {0};
    struct logline line;
    struct buf out = {0};

    if (logline_parse(text, size, &line)) {
        check_slice(&line.prefix, text, size);
        check_slice(&line.time, text, size);
        check_slice(&line.message, text, size);
        check_slice(&line.pairs, text, size);
        logline_put_message(&line.message, &out);
        assert(out.len <= line.message.len);
        // Nothing of it moves the cursor of a terminal.
        for (size_t i = 0; i < out.len; i++)
            assert((unsigned char)out.data[i] >= 0x20);
    }
    buf_clear(&out);
    buf_append(&out, data, size);
    redact_add(&redact, "planted-secret");
    redact_text(&redact, &out);
    assert(!out.data || !strstr(out.data, "planted-secret"));
    redact_done(&redact);
    buf_done(&out);
    return 0;
}
