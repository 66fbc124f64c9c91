// SPDX-License-Identifier: Apache-2.0
#include "k8s/server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "base/buf.h"

static char *copy(const char *text, size_t len)
{
    char *result = strndup(text, len);

    if (!result)
        abort();
    return result;
}

static void free_url(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void free_text(char **text)
{
    curl_free(*text);
}

static bool has_part(CURLU *url, CURLUPart part)
{
    __attribute__((cleanup(free_text))) char *text = NULL;

    return curl_url_get(url, part, &text, 0) == CURLUE_OK && text[0] != '\0' &&
           strcmp(text, "/") != 0;
}

static int check_parts(CURLU *url, struct err *err)
{
    static const struct {
        CURLUPart part;
        const char *name;
    } unwanted[] = {
        {CURLUPART_USER, "a user"},  {CURLUPART_PASSWORD, "a password"},
        {CURLUPART_PATH, "a path"},  {CURLUPART_QUERY, "a query"},
        {CURLUPART_FRAGMENT, "a #"}, {CURLUPART_OPTIONS, "options"},
    };

    for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
        if (has_part(url, unwanted[i].part))
            return err_set(err, ERR_INVALID, 0, "it has %s: write https://HOST:PORT",
                           unwanted[i].name);
    return 0;
}

// "[fd00::1]" is an address without its brackets.
static void set_host(struct k8s_server *server, const char *host)
{
    struct in6_addr addr;
    size_t len = strlen(host);

    if (host[0] == '[' && len > 2) {
        server->host = copy(host + 1, len - 2);
        server->is_name = false;
        return;
    }
    server->host = copy(host, len);
    server->is_name = inet_pton(AF_INET, host, &addr) != 1;
}

// curl keeps the zone of "[fe80::1%25eth0]" apart.
static void set_base(struct k8s_server *server, CURLU *url, const char *scheme,
                     const char *host)
{
    __attribute__((cleanup(free_text))) char *zone = NULL;
    struct buf base = {0};

    if (curl_url_get(url, CURLUPART_ZONEID, &zone, 0) == CURLUE_OK)
        buf_printf(&base, "%s://[%s%%25%s]:%s", scheme, server->host, zone, server->port);
    else
        buf_printf(&base, "%s://%s:%s", scheme, host, server->port);
    server->base = copy(base.data, base.len);
    buf_done(&base);
}

static int take_apart(CURLU *url, const char *text, struct k8s_server *server, struct err *err)
{
    __attribute__((cleanup(free_text))) char *scheme = NULL;
    __attribute__((cleanup(free_text))) char *host = NULL;
    __attribute__((cleanup(free_text))) char *port = NULL;
    CURLUcode code = curl_url_set(url, CURLUPART_URL, text, 0);

    if (code != CURLUE_OK)
        return err_set(err, ERR_INVALID, 0,
                       "%s: write https://HOST:PORT, an IPv6 address in "
                       "brackets",
                       curl_url_strerror(code));
    if (curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
        return err_set(err, ERR_INVALID, 0, "no scheme or host: write https://HOST:PORT");
    if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        return err_set(err, ERR_INVALID, 0, "scheme %.20s: only https and http are known",
                       scheme);
    if (check_parts(url, err) < 0)
        return -1;
    server->is_tls = strcmp(scheme, "https") == 0;
    server->port = copy(port, strlen(port));
    set_host(server, host);
    set_base(server, url, scheme, host);
    return 0;
}

int k8s_server_parse(const char *url, struct k8s_server *ret, struct err *err)
{
    __attribute__((cleanup(free_url))) CURLU *parts = curl_url();
    struct k8s_server server = {0};

    if (!parts)
        abort();
    // A URL with a password in it must not get into a log.
    if (take_apart(parts, url, &server, err) < 0)
        return err_wrap(err, "API server%s%.80s%s", strchr(url, '@') ? "" : " \"",
                        strchr(url, '@') ? "" : url, strchr(url, '@') ? "" : "\"");
    *ret = server;
    return 0;
}

void k8s_server_done(struct k8s_server *server)
{
    free(server->base);
    free(server->host);
    free(server->port);
    *server = (struct k8s_server){0};
}
