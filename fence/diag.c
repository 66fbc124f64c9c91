// SPDX-License-Identifier: Apache-2.0
#include "fence/diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATE_LISTEN  10
#define DATAGRAMS_MAX 1000

// A port of one message; false: too short for one.
static bool take_port(const char *payload, size_t size, uint16_t *ret_port)
{
    struct inet_diag_msg message;

    if (size < sizeof(message))
        return false;
    memcpy(&message, payload, sizeof(message));
    *ret_port = ntohs(message.id.idiag_sport);
    return true;
}

void diag_feed(struct diag_answer *answer, const void *bytes, size_t size, diag_fn *fn,
               void *arg)
{
    const char *p = bytes;

    while (size > 0 && !answer->is_done && !answer->is_broken) {
        struct nlmsghdr head = {0};
        size_t step = 0;
        uint16_t port = 0;

        if (size < sizeof(head)) {
            answer->is_broken = true;
            return;
        }
        memcpy(&head, p, sizeof(head));
        if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > size ||
            head.nlmsg_seq != answer->seq || (head.nlmsg_flags & NLM_F_DUMP_INTR)) {
            answer->is_broken = true;
            return;
        }
        if (head.nlmsg_type == NLMSG_DONE)
            answer->is_done = true;
        else if (head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
                 take_port(p + sizeof(head), head.nlmsg_len - sizeof(head), &port))
            fn(port, arg);
        else
            answer->is_broken = true; // NLMSG_ERROR or nothing that we asked for
        step = NLMSG_ALIGN(head.nlmsg_len);
        step = step < size ? step : size;
        p += step;
        size -= step;
    }
}

int diag_open(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static bool ask(int fd, uint32_t seq, int family)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 what;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                          .nlmsg_seq = seq},
                 .what = {.sdiag_family = (uint8_t)family,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_states = 1U << STATE_LISTEN}};
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

    return sendto(fd, &request, sizeof(request), 0, (const struct sockaddr *)&kernel,
                  sizeof(kernel)) == (ssize_t)sizeof(request);
}

bool diag_listeners(int fd, uint32_t seq, int family, diag_fn *fn, void *arg)
{
    static char datagram[32768]; // what the kernel fills at most
    struct diag_answer answer = {.seq = seq};

    if (!ask(fd, seq, family))
        return false;
    // A dump is answered by the calls that read it: no answer now is no answer.
    for (int i = 0; i < DATAGRAMS_MAX && !answer.is_done && !answer.is_broken; i++) {
        ssize_t n = recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT | MSG_TRUNC);
        if (n <= 0 || (size_t)n > sizeof(datagram))
            return false;
        diag_feed(&answer, datagram, (size_t)n, fn, arg);
    }
    return answer.is_done;
}
