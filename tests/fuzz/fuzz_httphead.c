// SPDX-License-Identifier: Apache-2.0
// What anybody in the cluster's network can send to the agent's HTTP port.
#include "base/httphead.h"
#include "tests/fuzz/fuzz.h"

static void check_slice(struct httphead_text text, const uint8_t *data, size_t len)
{
    const char *start = (const char *)data;

    assert(text.len == 0 || (text.data >= start && text.data + text.len <= start + len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct httphead head;
    size_t len = 0;
    size_t again_len = 0;
    int status = 0;
    enum httphead_result result =
        httphead_parse((const char *)data, size, &head, &len, &status);

    assert((result == HTTPHEAD_REFUSED) == (status != 0));
    assert(status == 0 || (status >= 400 && status < 600));
    if (result != HTTPHEAD_WHOLE)
        return 0;
    assert(len > 0 && len <= size && data[len - 1] == '\n');
    check_slice(head.path, data, len);
    check_slice(head.query, data, len);
    check_slice(head.accept, data, len);
    assert(head.path.len > 0 && (head.path.data[0] == '/' || head.path.data[0] == '*'));
    // A head is the same head whatever is behind it.
    assert(httphead_parse((const char *)data, len, &head, &again_len, &status) ==
               HTTPHEAD_WHOLE &&
           again_len == len);
    return 0;
}
