// SPDX-License-Identifier: Apache-2.0
#include "agent/reconcile/address.h"

#include <string.h>

#define LABEL_MAX  63
#define NAME_MAX_  (ADDRESS_NAME_SIZE - 1)
#define IP_TEXT    64
#define POD_LABELS 3 // "10-0-0-7", the namespace, "pod"

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

// Locale has no say here.
static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
    c = lower(c);
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// --- IP ---

// Four decimal numbers and nothing else. A leading zero is octal for some.
static bool parse_ip4(const char *text, uint8_t *ret)
{
    for (int i = 0; i < 4; i++) {
        unsigned value = 0;
        size_t len = 0;

        for (; is_digit(text[len]) && len < 4; len++)
            value = value * 10 + (unsigned)(text[len] - '0');
        if (len == 0 || len > 3 || value > 255 || (len > 1 && text[0] == '0'))
            return false;
        ret[i] = (uint8_t)value;
        text += len;
        if (i < 3 && *text++ != '.')
            return false;
    }
    return *text == '\0';
}

static size_t parse_group(const char *text, unsigned *ret)
{
    size_t len = 0;

    *ret = 0;
    for (; len < 4 && hex_value(text[len]) >= 0; len++)
        *ret = *ret * 16 + (unsigned)hex_value(text[len]);
    return len;
}

struct groups {
    uint8_t bytes[16];
    size_t len;
    size_t gap; // where "::" was; > 16: nowhere
};

// One group with the colon behind it, or the IPv4 tail. Returns how much was taken; 0: bad.
static size_t take_group(const char *text, struct groups *groups)
{
    unsigned value = 0;
    size_t len = parse_group(text, &value);
    bool has_colon = text[len] == ':' && text[len + 1] != ':'; // "::" is no group's

    if (groups->len <= 12 && parse_ip4(text, groups->bytes + groups->len)) {
        groups->len += 4;
        return strlen(text);
    }
    if (len == 0 || groups->len > 14 || (text[len] != ':' && text[len] != '\0'))
        return 0;
    if (has_colon && text[len + 1] == '\0')
        return 0;
    groups->bytes[groups->len++] = (uint8_t)(value >> 8);
    groups->bytes[groups->len++] = (uint8_t)value;
    return has_colon ? len + 1 : len;
}

// "::", of which there is at most one. Returns how much was taken; 0: bad.
static size_t take_gap(struct groups *groups)
{
    if (groups->gap <= 16)
        return 0;
    groups->gap = groups->len;
    return 2;
}

static bool take_groups(const char *text, struct groups *groups)
{
    if (text[0] == ':' && text[1] != ':')
        return false;
    while (*text) {
        bool is_gap = text[0] == ':' && text[1] == ':';
        size_t taken = is_gap ? take_gap(groups) : take_group(text, groups);

        if (taken == 0)
            return false;
        text += taken;
    }
    return true;
}

static bool parse_ip6(const char *text, uint8_t *ret)
{
    struct groups groups = {.gap = 17};
    size_t tail = 0;

    if (!take_groups(text, &groups))
        return false;
    if (groups.gap > 16) {
        memcpy(ret, groups.bytes, 16);
        return groups.len == 16;
    }
    if (groups.len > 14)
        return false;
    tail = groups.len - groups.gap;
    memset(ret, 0, 16);
    memcpy(ret, groups.bytes, groups.gap);
    memcpy(ret + 16 - tail, groups.bytes + groups.gap, tail);
    return true;
}

// An address by which nobody else can mean the same process as we do.
static bool is_local(const uint8_t *ip)
{
    static const uint8_t zero[16];

    if (memcmp(ip, mapped, sizeof(mapped)) == 0)
        return ip[12] == 127 || ip[12] == 0;
    if (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80)
        return true;
    return memcmp(ip, zero, 15) == 0 && ip[15] <= 1;
}

static bool parse_ip(const char *text, struct address *address)
{
    if (parse_ip4(text, address->ip + sizeof(mapped)))
        memcpy(address->ip, mapped, sizeof(mapped));
    else if (!parse_ip6(text, address->ip))
        return false;
    address->kind = is_local(address->ip) ? ADDRESS_BAD : ADDRESS_IP;
    return true;
}

// --- names ---

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

// Whether it could be a host's name; a last label of digits is a number for a resolver.
static bool check_name(const char *name, size_t len)
{
    size_t label = 0;
    bool is_number = true;

    for (size_t i = 0; i < len; i++) {
        if (name[i] == '.') {
            if (label == 0)
                return false;
            label = 0;
            is_number = true;
            continue;
        }
        if (!is_name_char(name[i]) || ++label > LABEL_MAX)
            return false;
        is_number = is_number && is_digit(name[i]);
    }
    return label > 0 && !is_number;
}

static bool ends_with(const char *name, size_t len, const char *end)
{
    size_t end_len = strlen(end);

    return len >= end_len && memcmp(name + len - end_len, end, end_len) == 0;
}

static bool is_localhost(const struct address *address)
{
    return strcmp(address->name, "localhost") == 0 ||
           ends_with(address->name, address->name_len, ".localhost");
}

// "10-0-0-7.ns.pod…"
static bool is_pod_name(const char *name)
{
    for (int i = 1; i < POD_LABELS; i++) {
        name = strchr(name, '.');
        if (!name)
            return false;
        name++;
    }
    return strcspn(name, ".") == 3 && memcmp(name, "pod", 3) == 0;
}

// The first label, with `separator` for its dashes.
static bool parse_label(struct address *address, char separator)
{
    char text[IP_TEXT] = {0};
    size_t len = strcspn(address->name, ".");

    if (len >= sizeof(text))
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = address->name[i] == '-' ? separator : address->name[i];
    return parse_ip(text, address);
}

// "10-0-0-7.ns.pod…" and "fd00--1.ns.pod…": the address is written in the name.
static bool parse_dashed(struct address *address)
{
    return is_pod_name(address->name) &&
           (parse_label(address, '.') || parse_label(address, ':'));
}

static void parse_name(const char *text, struct address *address)
{
    size_t len = strlen(text);

    if (len > 0 && text[len - 1] == '.')
        len--;
    if (len == 0 || len > NAME_MAX_)
        return;
    for (size_t i = 0; i < len; i++)
        address->name[i] = lower(text[i]);
    address->name[len] = '\0';
    address->name_len = len;
    if (!check_name(address->name, len) || is_localhost(address))
        return;
    if (!parse_dashed(address))
        address->kind = ADDRESS_NAME;
}

struct address address_parse(const char *text)
{
    struct address address;
    char inner[IP_TEXT];
    size_t len = text ? strlen(text) : 0;

    // Not the name, which is most of it, for each of a hundred thousand rows.
    address.kind = ADDRESS_BAD;
    address.name[0] = '\0';
    address.name_len = 0;
    memset(address.ip, 0, sizeof(address.ip));
    if (len == 0)
        return address;
    if (text[0] == '[') {
        if (text[len - 1] != ']' || len - 2 >= sizeof(inner))
            return address;
        memcpy(inner, text + 1, len - 2);
        inner[len - 2] = '\0';
        if (!strchr(inner, ':') || !parse_ip(inner, &address))
            address.kind = ADDRESS_BAD;
        return address;
    }
    if (!parse_ip(text, &address))
        parse_name(text, &address);
    return address;
}

// Steps over ".label" if that is what comes next.
static bool step(const char **rest, const char *label)
{
    size_t len = strlen(label);

    if ((*rest)[0] != '.' || strncmp(*rest + 1, label, len) != 0)
        return false;
    if ((*rest)[1 + len] != '.' && (*rest)[1 + len] != '\0')
        return false;
    *rest += 1 + len;
    return true;
}

enum address_match address_names(const struct address *address, const struct address_pod *pod)
{
    size_t host_len = strlen(pod->host);
    const char *rest = address->name + host_len;

    if (address->kind != ADDRESS_NAME || address->name_len < host_len ||
        memcmp(address->name, pod->host, host_len) != 0 || (*rest != '\0' && *rest != '.'))
        return ADDRESS_NO;
    if (*rest == '\0')
        return ADDRESS_YES;
    if (!pod->subdomain || !step(&rest, pod->subdomain))
        return ADDRESS_MAYBE;
    if (*rest == '\0')
        return ADDRESS_YES;
    if (pod->name_space && !step(&rest, pod->name_space))
        return ADDRESS_NO;
    if (!pod->name_space)
        rest += 1 + strcspn(rest + 1, ".");
    if (*rest == '\0')
        return ADDRESS_YES;
    if (!step(&rest, "svc"))
        return ADDRESS_MAYBE;
    return ADDRESS_YES; // any domain of a cluster is believed
}

bool address_ordinal(const struct address *address, size_t *ret_set_len, int32_t *ret_ordinal)
{
    size_t len = strcspn(address->name, ".");
    size_t at = len;
    int64_t value = 0;

    if (address->kind != ADDRESS_NAME)
        return false;
    while (at > 0 && is_digit(address->name[at - 1]))
        at--;
    if (at < 2 || at == len || address->name[at - 1] != '-' || len - at > 10 ||
        (address->name[at] == '0' && len - at > 1))
        return false;
    for (size_t i = at; i < len; i++)
        value = value * 10 + (address->name[i] - '0');
    if (value > INT32_MAX)
        return false;
    *ret_set_len = at - 1;
    *ret_ordinal = (int32_t)value;
    return true;
}
