// SPDX-License-Identifier: Apache-2.0
// A worker's address: whatever the text, it is in one of three kinds; a dot at the end and
// upper case change nothing, and a name that was taken apart once is the same the second time.
#include "agent/reconcile/address.h"
#include "tests/fuzz/fuzz.h"

static void check_again(const struct address *address)
{
    struct address again = address_parse(address->name);
    struct address_pod pod = {.host = address->name};
    size_t len = 0;
    int32_t ordinal = 0;

    assert(again.kind == ADDRESS_NAME);
    assert(strcmp(again.name, address->name) == 0);
    assert(address_names(address, &pod) == ADDRESS_YES);
    if (address_ordinal(address, &len, &ordinal))
        assert(ordinal >= 0 && len > 0 && address->name[len] == '-');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[512];
    size_t len = size < sizeof(text) - 2 ? size : sizeof(text) - 2;
    struct address address;
    struct address other;

    memcpy(text, data, len);
    text[len] = '\0';
    len = strlen(text);
    address = address_parse(text);
    if (address.kind == ADDRESS_NAME) {
        assert(address.name_len == strlen(address.name) && address.name_len > 0);
        check_again(&address);
    }
    for (char *c = text; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    other = address_parse(text);
    assert(other.kind == address.kind);
    assert(memcmp(other.ip, address.ip, sizeof(other.ip)) == 0 || other.kind != ADDRESS_IP);
    if (address.kind == ADDRESS_NAME && text[len - 1] != '.') {
        text[len] = '.';
        text[len + 1] = '\0';
        other = address_parse(text);
        assert(other.kind == ADDRESS_NAME && strcmp(other.name, address.name) == 0);
    }
    return 0;
}
