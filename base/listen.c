// SPDX-License-Identifier: Apache-2.0
#include "base/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128

struct endpoint {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } addr;
    socklen_t len;
    bool is_all; // IPv4 as well, by the same socket
};

static int endpoint_parse(const char *address, uint16_t port, struct endpoint *ret,
                          struct err *err)
{
    struct endpoint v4 = {.len = sizeof(v4.addr.v4)};
    struct endpoint v6 = {.len = sizeof(v6.addr.v6), .is_all = !address[0]};

    v4.addr.v4.sin_family = AF_INET;
    v4.addr.v4.sin_port = htons(port);
    v6.addr.v6.sin6_family = AF_INET6;
    v6.addr.v6.sin6_port = htons(port);
    if (v6.is_all || inet_pton(AF_INET6, address, &v6.addr.v6.sin6_addr) == 1)
        *ret = v6; // zeros are the address "::"
    else if (inet_pton(AF_INET, address, &v4.addr.v4.sin_addr) == 1)
        *ret = v4;
    else
        return err_set(err, ERR_INVALID, 0,
                       "%s is no IPv4 or IPv6 address: write it in numbers, without brackets",
                       address);
    return 0;
}

static int refuse(int fd, const char *address, uint16_t port, struct err *err)
{
    (void)err_set(err, errno == EADDRINUSE ? ERR_CONFLICT : ERR_DENIED, errno,
                  "can't listen on %s port %u: %m", address[0] ? address : "any address,",
                  port);
    close(fd);
    return -1;
}

static int listen_at(const struct endpoint *endpoint, const char *address, uint16_t port,
                     struct err *err)
{
    const int family = endpoint->addr.any.sa_family;
    const int on = 1;
    const int only_v6 = !endpoint->is_all;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_set(err, ERR_TRANSIENT, errno, "no socket: %m");
    // Connections of a predecessor that the kernel still remembers do not block the port.
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        (family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6)) != 0) ||
        bind(fd, &endpoint->addr.any, endpoint->len) != 0 || listen(fd, BACKLOG) != 0)
        return refuse(fd, address, port, err);
    return fd;
}

static uint16_t port_of(int fd)
{
    struct endpoint bound = {.len = sizeof(bound.addr)};

    (void)getsockname(fd, &bound.addr.any, &bound.len); // can't fail for a bound socket
    return ntohs(bound.addr.any.sa_family == AF_INET6 ? bound.addr.v6.sin6_port
                                                      : bound.addr.v4.sin_port);
}

int listen_tcp(const char *address, uint16_t port, int *ret_fd, uint16_t *ret_port,
               struct err *err)
{
    struct endpoint endpoint = {0};
    int fd = -1;

    if (endpoint_parse(address, port, &endpoint, err) < 0)
        return -1;
    fd = listen_at(&endpoint, address, port, err);
    // A kernel without IPv6, or with it turned off.
    if (fd < 0 && endpoint.is_all &&
        (err->code == EAFNOSUPPORT || err->code == EADDRNOTAVAIL)) {
        if (endpoint_parse("0.0.0.0", port, &endpoint, err) < 0)
            return -1;
        fd = listen_at(&endpoint, address, port, err);
    }
    if (fd < 0)
        return -1;
    *ret_fd = fd;
    *ret_port = port_of(fd);
    return 0;
}
