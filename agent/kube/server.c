// SPDX-License-Identifier: Apache-2.0
#include "agent/kube/server.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DIGITS "0123456789"
#define NAME   DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._"

static bool is_port(const char *port)
{
    size_t len = strlen(port);
    unsigned value = 0;

    if (len == 0 || len > 5 || strspn(port, DIGITS) != len)
        return false;
    for (; *port; port++)
        value = value * 10 + (unsigned)(*port - '0');
    return value >= 1 && value <= 65535;
}

static int put_ipv6(const char *host, const char *port, char *url, struct err *err)
{
    char bare[128];
    const char *zone = NULL;
    size_t len = strlen(host);
    bool is_bracketed = host[0] == '[' && host[len - 1] == ']';

    if (len >= sizeof(bare))
        return err_set(err, ERR_INVALID, 0, "KUBERNETES_SERVICE_HOST is too long");
    (void)snprintf(bare, sizeof(bare), "%.*s", (int)(is_bracketed ? len - 2 : len),
                   host + is_bracketed);
    zone = strchr(bare, '%');
    len = zone ? (size_t)(zone - bare) : strlen(bare);
    if (len == 0 || strspn(bare, DIGITS "abcdefABCDEF:.") != len)
        return err_set(err, ERR_INVALID, 0, "KUBERNETES_SERVICE_HOST: \"%.60s\" is no address",
                       host);
    if (!zone) {
        (void)snprintf(url, KUBE_SERVER_SIZE, "https://[%s]:%s", bare, port);
        return 0;
    }
    zone += strncmp(zone, "%25", 3) == 0 ? 3 : 1;
    if (strspn(zone, NAME) != strlen(zone) || !*zone)
        return err_set(err, ERR_INVALID, 0,
                       "KUBERNETES_SERVICE_HOST: \"%.60s\" has no good zone", host);
    (void)snprintf(url, KUBE_SERVER_SIZE, "https://[%.*s%%25%s]:%s", (int)len, bare, zone,
                   port);
    return 0;
}

int kube_server_url(const char *host, const char *port, char ret_url[KUBE_SERVER_SIZE],
                    struct err *err)
{
    if (!host || !*host)
        return err_set(err, ERR_INVALID, 0,
                       "KUBERNETES_SERVICE_HOST is not set: set kubernetes.server");
    if (!port || !*port)
        port = "443";
    if (!is_port(port))
        return err_set(err, ERR_INVALID, 0, "KUBERNETES_SERVICE_PORT: \"%.20s\" is no port",
                       port);
    if (strchr(host, ':'))
        return put_ipv6(host, port, ret_url, err);
    if (strspn(host, NAME) != strlen(host) || strlen(host) > 253)
        return err_set(err, ERR_INVALID, 0, "KUBERNETES_SERVICE_HOST: \"%.60s\" is no host",
                       host);
    (void)snprintf(ret_url, KUBE_SERVER_SIZE, "https://%s:%s", host, port);
    return 0;
}
