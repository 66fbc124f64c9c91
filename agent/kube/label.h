// SPDX-License-Identifier: Apache-2.0
#pragma once
// label: which patch of our pod's role label is due, and what its answer means. Pure: no
// clock, no I/O. Invariants: at most one patch is under way; what is sent is always the newest
// wish; an outcome that is not known is answered by sending the newest wish again; our own key
// is never given up, the second key (roleLabel) is left to another writer until the next
// resync, and tried again after a denial, later and later.

#include <stdbool.h>
#include <stdint.h>

#include "agent/core/decide.h"
#include "agent/kube/await.h"
#include "k8s/client.h"

#define KUBE_OWN_KEY         "metafence.io/role"
#define KUBE_LABEL_TEXT_SIZE 64 // values of labels are at most 63 bytes

// What has become of the second key.
enum kube_role_key {
    KUBE_ROLE_KEY_NONE = 0, // there is none
    KUBE_ROLE_KEY_OURS,     // written, or about to be
    KUBE_ROLE_KEY_YIELDED,  // another manager's, until the next resync
    KUBE_ROLE_KEY_OBSERVED, // never written
    KUBE_ROLE_KEY_DENIED,   // refused by rights or policy: tried again, later and later
};

struct kube_label_config {
    bool has_role_key;
    bool observe;
    int64_t resync_ns;
    uint32_t seed; // of the jitter: different in each pod
};

// One patch: our key, and with it the second one.
struct kube_label_send {
    enum role_label role;
    bool with_role_key;
    bool force; // whoever owns what is written
};

struct kube_label {
    struct kube_label_config config;
    uint32_t random;
    bool has_wish;
    enum role_label wish;
    bool is_sending;
    struct kube_label_send sending;
    bool insists; // somebody else has written our key, and the second one is not disputed
    struct instant sent_at;
    bool is_confirmed; // the API has agreed to `confirmed`, and nothing since then speaks
                       // against
    enum role_label confirmed;
    enum kube_role_key role_key;
    bool in_doubt;        // a patch whose fate is not known may still land
    bool is_doubt_resync; // the next resync is because of it
    bool is_denied;       // our own key too
    bool is_halted;       // the pod of our name is not ours
    unsigned failures;
    unsigned role_key_denials; // of the second key alone, since it was last written
    struct instant not_before;
    struct instant busy_until; // the server's own word (Retry-After)
    struct instant resync_at;
    struct instant repaired_at;
    struct kube_await await;
    bool has_seen; // anything yet
    bool has_news; // since the last patch was sent, and not judged yet
    char seen_version[KUBE_VERSION_SIZE];
    char seen_own[KUBE_LABEL_TEXT_SIZE]; // "": no such label
    char seen_role[KUBE_LABEL_TEXT_SIZE];
};

const char *kube_role_text(enum role_label role); // "leader", "follower", "unknown"
const char *kube_role_key_name(enum kube_role_key state);

void kube_label_init(struct kube_label *label, const struct kube_label_config *config);
void kube_label_wish(struct kube_label *label, enum role_label role, struct instant now);

// The patch under way carries an older value and has had its time: give it up and say so by
// kube_label_done with K8S_UNKNOWN.
bool kube_label_is_overdue(const struct kube_label *label, struct instant now);
// Whether a patch is to be sent now, which then counts as sent.
bool kube_label_next(struct kube_label *label, struct instant now, struct kube_label_send *ret);

struct kube_label_answer {
    enum k8s_outcome outcome;
    int64_t retry_after_ns;
    const char *version;    // of the pod after the patch; NULL: not said
    bool role_key_is_owned; // K8S_OWNED is about the second key
};
// Takes the answer. Returns whether the pod has to be looked at afresh: it may be another's.
bool kube_label_done(struct kube_label *label, const struct kube_label_answer *answer,
                     struct instant now);

// What the watch shows of our pod. Values may be NULL: no such label.
struct kube_label_state {
    const char *version;
    const char *own;
    const char *role;
};
void kube_label_seen(struct kube_label *label, const struct kube_label_state *state,
                     struct instant now);
// Whether the pod of our name is ours.
void kube_label_found(struct kube_label *label, bool is_ours, struct instant now);
// The API is back: what waits is tried now.
void kube_label_hurry(struct kube_label *label, struct instant now);

// The second key shows something else than the confirmed role.
bool kube_label_role_differs(const struct kube_label *label);
// When something is due at the latest; INSTANT_NEVER: nothing.
struct instant kube_label_wake(const struct kube_label *label);
