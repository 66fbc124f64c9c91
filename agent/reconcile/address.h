// SPDX-License-Identifier: Apache-2.0
#pragma once
// address: the one normalizer of worker addresses, for what rows say and for what Kubernetes
// says. Two spellings of one IP address become the same 16 bytes, two spellings of one name the
// same lower-case text. Pure; nothing is ever resolved. Invariant: what can't be told is
// ADDRESS_BAD or ADDRESS_MAYBE, which nobody may take for "gone".

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDRESS_NAME_SIZE 254 // 253 bytes of a DNS name and the NUL

enum address_kind {
    ADDRESS_BAD = 0, // empty, loopback, unspecified, a zone, no address and no DNS name
    ADDRESS_IP,
    ADDRESS_NAME,
};

struct address {
    enum address_kind kind;
    uint8_t ip[16];               // IPv4 as ::ffff:a.b.c.d
    char name[ADDRESS_NAME_SIZE]; // lower case, without the dot at the end
    size_t name_len;
};

// Takes "10.0.0.7", "::FFFF:10.0.0.7", "[fd00::1]", "C-1.C-headless.Ns.svc.cluster.local.", and
// the cluster's names of bare pods ("10-0-0-7.ns.pod.cluster.local", which are addresses). NULL
// is ADDRESS_BAD, and so is what a resolver might read in more than one way ("010.0.0.7",
// "10.7").
struct address address_parse(const char *text);

// How a pod may be called; NULL: not said. All lower case, as Kubernetes wants them.
struct address_pod {
    const char *host;       // spec.hostname, or the pod's name
    const char *subdomain;  // the headless service
    const char *name_space; // NULL: believed
};

enum address_match {
    ADDRESS_NO = 0, // begins otherwise, or names another namespace
    ADDRESS_MAYBE,  // begins with the pod's name and goes on in a way that can't be judged
    ADDRESS_YES,    // host | host.subdomain | ….ns | ….ns.svc | ….ns.svc.domain
};

// Of an ADDRESS_NAME; ADDRESS_NO for the others.
enum address_match address_names(const struct address *address, const struct address_pod *pod);

// "compute-12" and names that begin so ("compute-12.compute-headless…"): the first label up to
// its last dash, and the number behind it. False: no such number, or one beyond 2^31 - 1, or
// one that begins with a zero. *ret_set_len: bytes of "compute" in address->name.
bool address_ordinal(const struct address *address, size_t *ret_set_len, int32_t *ret_ordinal);
