// SPDX-License-Identifier: Apache-2.0
#include "base/resolve.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <event2/dns.h>
#include <event2/util.h>

#define MAX_HOST 254
#define MAX_KEPT                                                                               \
    16 // names of which the last good answer is kept; a process asks for two or three

struct kept {
    char host[MAX_HOST];
    struct resolve_answer answer;
    // The last look-up failed: the next one may take a quarter of its time, so that the address
    // we know can be tried for the rest of it. Every other one: a slow server is heard, too.
    bool is_hurried;
};

struct resolver {
    struct loop *loop;
    struct evdns_base *dns;
    struct resolve_query *queries;
    struct kept kept[MAX_KEPT];
    size_t kept_count;
    size_t kept_next; // replaced next once all are taken
};

// The answer of evdns or the time-out only note the result; the callback always comes from
// `timer`, so that it can never run inside resolve_start.
struct resolve_query {
    struct resolver *resolver;
    struct resolve_query *next;
    char host[MAX_HOST];
    struct evdns_getaddrinfo_request *request; // NULL once it has answered
    struct loop_timer *timer;
    bool has_result;
    struct resolve_answer answer;
    struct err err;
    resolve_fn *fn;
    void *arg;
};

int resolver_new(struct loop *loop, const struct resolve_config *config,
                 struct resolver **ret_resolver, struct err *err)
{
    struct evdns_base *dns =
        evdns_base_new(loop_event_base(loop), EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    struct resolver *resolver = NULL;
    char seconds[32];

    if (!dns)
        return err_set(err, ERR_TRANSIENT, errno, "no resolver: %m");
    // Order matters: a resolv.conf's own options come first, ours win.
    (void)evdns_base_resolv_conf_parse(dns, DNS_OPTIONS_ALL & ~DNS_OPTION_HOSTSFILE,
                                       config->resolv_conf ? config->resolv_conf
                                                           : "/etc/resolv.conf");
    (void)evdns_base_load_hosts(dns, config->hosts ? config->hosts : "/etc/hosts");
    (void)snprintf(seconds, sizeof(seconds), "%lld.%06lld",
                   (long long)(config->query_timeout_ns / NS_PER_SEC),
                   (long long)(config->query_timeout_ns % NS_PER_SEC / 1000));
    if (evdns_base_set_option(dns, "timeout:", seconds) != 0 ||
        evdns_base_set_option(dns, "attempts:", "2") != 0 ||
        // Mixed-case questions break some forwarders, and the cluster's resolver is trusted
        // anyway.
        evdns_base_set_option(dns, "randomize-case:", "0") != 0 ||
        // A server that was silent is asked again soon, not after libevent's 10 s growing to an
        // hour.
        evdns_base_set_option(dns, "initial-probe-timeout:", "1") != 0 ||
        evdns_base_set_option(dns, "max-timeouts:", "255") != 0) {
        evdns_base_free(dns, 0);
        return err_set(err, ERR_TRANSIENT, 0, "the resolver refuses its options");
    }
    resolver = calloc(1, sizeof(*resolver));
    if (!resolver)
        abort();
    resolver->loop = loop;
    resolver->dns = dns;
    *ret_resolver = resolver;
    return 0;
}

static void query_unlink(struct resolve_query *query)
{
    struct resolve_query **at = &query->resolver->queries;

    while (*at != query)
        at = &(*at)->next;
    *at = query->next;
}

// evdns calls back for a cancelled request as well, from the loop and later: the query outlives
// the caller's interest until that has come.
static void query_release(struct resolve_query *query)
{
    struct evdns_getaddrinfo_request *request = query->request;

    query->fn = NULL;
    loop_timer_free(query->timer);
    query->timer = NULL;
    query_unlink(query);
    if (request)
        evdns_getaddrinfo_cancel(request); // on_answer frees the query
    else
        free(query);
}

void resolver_free(struct resolver *resolver)
{
    if (!resolver)
        return;
    while (resolver->queries)
        query_release(resolver->queries);
    evdns_base_free(resolver->dns, 1); // fails what is left now, so that on_answer frees it
    free(resolver);
}

static struct kept *kept_find(struct resolver *resolver, const char *host)
{
    for (size_t i = 0; i < resolver->kept_count; i++)
        if (strcasecmp(resolver->kept[i].host, host) == 0)
            return &resolver->kept[i];
    return NULL;
}

static void kept_store(struct resolver *resolver, const struct resolve_query *query)
{
    struct kept *kept = kept_find(resolver, query->host);

    if (!kept && resolver->kept_count < MAX_KEPT)
        kept = &resolver->kept[resolver->kept_count++];
    if (!kept) {
        kept = &resolver->kept[resolver->kept_next];
        resolver->kept_next = (resolver->kept_next + 1) % MAX_KEPT;
    }
    memcpy(kept->host, query->host, sizeof(kept->host));
    kept->answer = query->answer;
    kept->is_hurried = false;
}

static void copy_addrs(const struct evutil_addrinfo *list, struct resolve_answer *answer)
{
    for (; list && answer->count < RESOLVE_MAX_ADDRS; list = list->ai_next)
        if (getnameinfo(list->ai_addr, (socklen_t)list->ai_addrlen,
                        answer->addrs[answer->count], RESOLVE_ADDR_SIZE, NULL, 0,
                        NI_NUMERICHOST) == 0)
            answer->count++;
}

static enum err_kind kind_of(int code)
{
    return code == EVUTIL_EAI_NONAME || code == EVUTIL_EAI_NODATA ? ERR_DENIED : ERR_TRANSIENT;
}

static void on_answer(int code, struct evutil_addrinfo *list, void *arg)
{
    struct resolve_query *query = arg;

    if (!query->fn) { // released
        if (list)
            evutil_freeaddrinfo(list);
        free(query);
        return;
    }
    query->request = NULL;
    query->has_result = true;
    if (code == 0)
        copy_addrs(list, &query->answer);
    if (list)
        evutil_freeaddrinfo(list);
    if (query->answer.count == 0)
        (void)err_set(&query->err, kind_of(code), code, "can't resolve \"%.100s\": %s",
                      query->host, code ? evutil_gai_strerror(code) : "no usable address");
    loop_timer_arm(query->timer, 0);
}

static void on_timer(void *arg)
{
    struct resolve_query *query = arg;
    struct resolve_answer answer = query->answer;
    struct err err = query->err;
    resolve_fn *fn = query->fn;
    void *fn_arg = query->arg;
    struct kept *kept = NULL;
    bool is_good = answer.count > 0;

    if (!query->has_result)
        (void)err_set(&err, ERR_TRANSIENT, ETIMEDOUT,
                      "can't resolve \"%.100s\": no name server answered in time", query->host);
    if (is_good) {
        answer.since = clock_now();
        query->answer = answer;
        kept_store(query->resolver, query);
    } else {
        kept = kept_find(query->resolver, query->host);
    }
    if (kept) {
        kept->is_hurried = !kept->is_hurried;
        answer = kept->answer;
        answer.is_stale = true;
    }
    query_release(query);
    fn(answer.count > 0 ? &answer : NULL, is_good ? NULL : &err, fn_arg);
}

struct resolve_query *resolve_start(struct resolver *resolver, const char *host,
                                    int64_t timeout_ns, resolve_fn *fn, void *arg)
{
    struct resolve_query *query = calloc(1, sizeof(*query));
    struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct evdns_getaddrinfo_request *request = NULL;
    const struct kept *kept = NULL;
    size_t len = strlen(host);

    if (!query)
        abort();
    *query = (struct resolve_query){
        .resolver = resolver, .next = resolver->queries, .fn = fn, .arg = arg};
    resolver->queries = query;
    query->timer = loop_timer_new(resolver->loop, on_timer, query);
    if (len == 0 || len >= MAX_HOST) {
        (void)err_set(&query->err, ERR_INVALID, 0,
                      "\"%.60s\" is not a host name: it must have 1 to %d characters", host,
                      MAX_HOST - 1);
        query->has_result = true;
        loop_timer_arm(query->timer, 0);
        return query;
    }
    memcpy(query->host, host, len + 1);
    kept = kept_find(resolver, host);
    loop_timer_arm(query->timer, kept && kept->is_hurried ? timeout_ns / 4 : timeout_ns);
    // Answers that need no server come from inside the call, with NULL as the request.
    request = evdns_getaddrinfo(resolver->dns, host, NULL, &hints, on_answer, query);
    if (!query->has_result)
        query->request = request;
    return query;
}

void resolve_cancel(struct resolve_query *query)
{
    if (query)
        query_release(query);
}
