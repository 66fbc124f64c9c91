// SPDX-License-Identifier: Apache-2.0
#include "base/httphead.h"

#include <string.h>
#include <strings.h>

#define HEADERS_MAX 64

// What is left to parse, and what the headers have said.
struct parse {
    const char *at;
    const char *end;
    struct httphead *head;
    bool is_http_1_1;
    unsigned headers;
    unsigned hosts;
    bool has_length, has_coding, says_close, says_keep_alive;
    int status; // of the refusal; 0: none
};

bool httphead_text_is(struct httphead_text text, const char *other)
{
    // An absent text has no bytes to compare.
    return text.len == strlen(other) &&
           (text.len == 0 || memcmp(text.data, other, text.len) == 0);
}

bool httphead_text_is_nocase(struct httphead_text text, const char *other)
{
    return text.len == strlen(other) &&
           (text.len == 0 || strncasecmp(text.data, other, text.len) == 0);
}

static bool refuse(struct parse *parse, int status)
{
    if (!parse->status)
        parse->status = status;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

// RFC 9110 5.6.2.
static bool is_token_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(struct httphead_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_token_char(text.data[i]))
            return false;
    return text.len > 0;
}

static struct httphead_text trim(struct httphead_text text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.len--;
    }
    while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text;
}

// Cuts what is before the first `c` off `rest`, which keeps what is behind it. Without `c`
// that is all.
static struct httphead_text cut(struct httphead_text *rest, char c)
{
    const char *found = rest->len ? memchr(rest->data, c, rest->len) : NULL;
    struct httphead_text before = {rest->data,
                                   found ? (size_t)(found - rest->data) : rest->len};
    size_t gone = before.len + (found ? 1 : 0);

    if (rest->len) {
        rest->data += gone;
        rest->len -= gone;
    }
    return before;
}

// The next line without its end, CRLF or a bare LF (RFC 9112 2.2 lets both end a line). The
// caller knows that one is there.
static struct httphead_text take_line(struct parse *parse)
{
    struct httphead_text line = {parse->at, 0};
    const char *newline = memchr(parse->at, '\n', (size_t)(parse->end - parse->at));

    line.len = (size_t)(newline - parse->at);
    parse->at = newline + 1;
    if (line.len > 0 && line.data[line.len - 1] == '\r')
        line.len--;
    return line;
}

static void set_method(struct httphead *head, struct httphead_text method)
{
    head->method = httphead_text_is(method, "GET")       ? HTTPHEAD_GET
                   : httphead_text_is(method, "HEAD")    ? HTTPHEAD_HEAD
                   : httphead_text_is(method, "OPTIONS") ? HTTPHEAD_OPTIONS
                                                         : HTTPHEAD_OTHER;
}

// "/path?query", "http://host/path?query" or "*".
static bool take_target(struct parse *parse, struct httphead_text target)
{
    static const char scheme[] = "http://";
    const size_t scheme_len = sizeof(scheme) - 1;

    for (size_t i = 0; i < target.len; i++)
        if (target.data[i] <= 0x20 || target.data[i] >= 0x7f || target.data[i] == '#')
            return refuse(parse, 400);
    if (target.len > scheme_len && strncasecmp(target.data, scheme, scheme_len) == 0) {
        const char *slash = memchr(target.data + scheme_len, '/', target.len - scheme_len);

        if (!slash)
            return refuse(parse, 400);
        target.len -= (size_t)(slash - target.data);
        target.data = slash;
    }
    if (!httphead_text_is(target, "*") && (target.len == 0 || target.data[0] != '/'))
        return refuse(parse, 400);
    parse->head->path = cut(&target, '?');
    parse->head->query = target;
    return true;
}

static bool take_version(struct parse *parse, struct httphead_text version)
{
    if (version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0 ||
        !is_digit(version.data[5]) || version.data[6] != '.' || !is_digit(version.data[7]))
        return refuse(parse, 400);
    if (version.data[5] != '1')
        return refuse(parse, 505);
    parse->is_http_1_1 = version.data[7] != '0';
    return true;
}

static bool take_request_line(struct parse *parse, struct httphead_text line)
{
    struct httphead_text method = cut(&line, ' ');
    struct httphead_text target = cut(&line, ' ');

    if (!is_token(method))
        return refuse(parse, 400);
    set_method(parse->head, method);
    // The version first: what follows may be written otherwise in another one.
    return take_version(parse, line) && take_target(parse, target);
}

static bool take_length(struct parse *parse, struct httphead_text value)
{
    bool is_zero = true;

    if (parse->has_length || value.len == 0)
        return refuse(parse, 400);
    parse->has_length = true;
    for (size_t i = 0; i < value.len; i++) {
        if (!is_digit(value.data[i]))
            return refuse(parse, 400);
        is_zero = is_zero && value.data[i] == '0';
    }
    parse->head->has_body = !is_zero;
    return true;
}

static void take_connection(struct parse *parse, struct httphead_text value)
{
    while (value.len > 0) {
        struct httphead_text token = trim(cut(&value, ','));

        parse->says_close = parse->says_close || httphead_text_is_nocase(token, "close");
        parse->says_keep_alive =
            parse->says_keep_alive || httphead_text_is_nocase(token, "keep-alive");
    }
}

static bool take_header(struct parse *parse, struct httphead_text line)
{
    bool has_colon = memchr(line.data, ':', line.len) != NULL;
    struct httphead_text name = cut(&line, ':');

    if (++parse->headers > HEADERS_MAX)
        return refuse(parse, 431);
    // A space before the colon and a folded line are no tokens: both are how requests are
    // smuggled.
    if (!has_colon || !is_token(name))
        return refuse(parse, 400);
    for (size_t i = 0; i < line.len; i++)
        if ((line.data[i] >= 0 && line.data[i] < 0x20 && line.data[i] != '\t') ||
            line.data[i] == 0x7f)
            return refuse(parse, 400);
    line = trim(line);
    if (httphead_text_is_nocase(name, "content-length"))
        return take_length(parse, line);
    if (httphead_text_is_nocase(name, "transfer-encoding"))
        parse->has_coding = true;
    else if (httphead_text_is_nocase(name, "host"))
        parse->hosts++;
    else if (httphead_text_is_nocase(name, "connection"))
        take_connection(parse, line);
    else if (httphead_text_is_nocase(name, "accept") && !parse->head->accept.data)
        parse->head->accept = line;
    return true;
}

static bool finish(struct parse *parse)
{
    if (parse->has_coding && (parse->has_length || !parse->is_http_1_1))
        return refuse(parse, 400); // whose end is where?
    if (parse->has_coding)
        return refuse(parse, 501);
    if (parse->hosts > 1 || (parse->hosts == 0 && parse->is_http_1_1))
        return refuse(parse, 400);
    parse->head->is_persistent =
        !parse->says_close && (parse->is_http_1_1 || parse->says_keep_alive);
    return true;
}

// True when a line that is empty comes after one that is not.
static bool has_end(const char *at, const char *end)
{
    for (const char *newline = at; (newline = memchr(newline, '\n', (size_t)(end - newline)));
         newline++) {
        const char *next = newline + 1;

        if (next < end && *next == '\r')
            next++;
        if (next < end && *next == '\n')
            return true;
    }
    return false;
}

enum httphead_result httphead_parse(const char *bytes, size_t len, struct httphead *ret,
                                    size_t *ret_len, int *ret_status)
{
    struct parse parse = {.at = bytes, .end = bytes + len, .head = ret};
    struct httphead_text line;
    bool is_good = false;

    *ret = (struct httphead){0};
    // Empty lines before a request are leftovers of a body (RFC 9112 2.2).
    while (parse.at < parse.end && (*parse.at == '\r' || *parse.at == '\n'))
        parse.at++;
    if (parse.at == parse.end || !has_end(parse.at, parse.end))
        return HTTPHEAD_PARTIAL;
    is_good = take_request_line(&parse, take_line(&parse));
    for (line = take_line(&parse); line.len > 0; line = take_line(&parse))
        is_good = is_good && take_header(&parse, line);
    if (is_good && finish(&parse)) {
        *ret_len = (size_t)(parse.at - bytes);
        return HTTPHEAD_WHOLE;
    }
    *ret_status = parse.status;
    return HTTPHEAD_REFUSED;
}
