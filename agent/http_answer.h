// SPDX-License-Identifier: Apache-2.0
#pragma once
// http_answer: what each endpoint says of a snapshot. Pure: a view and a path in, a status and
// a JSON body out. Nothing is asked of anybody, so no answer can be slow. docs/http.md has the
// whole table.

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/httphead.h"

// One moment of the agent. Strings are borrowed.
struct http_view {
    int64_t since_turn_ns;     // since the last decision; suspended time does not count
    const char *install_error; // why metafence-run's copy is not in place; NULL: it is, or none
                               // is wanted
    bool is_fence_known;       // metafence-run is connected and has said how meta is
    bool is_fence_silent;      // … but does not answer any more
    bool is_meta_alive;        // … and a process may run
    bool is_meta_stopped;      // TERM came: nothing is started any more
    const char *hold;          // why meta is not started; "": it is not held
    bool has_to_die;           // a kill was decided, or a deadline has passed, and death is not
                               // confirmed
    bool is_not_fenced; // … within the kill's budget; or dead, with sessions left in Postgres
    bool is_leader;     // as the label says
    bool is_follower;
    const char *role; // as `metafence status` shows it
    const char *rule;
    bool has_deadline;
    int64_t deadline_left_ns;
    bool is_row_known;
    const char *leader;   // the id in the row; "": none
    int64_t proof_age_ns; // of the read that all this rests on
    bool is_term_known;
    uint64_t term;
    const char *database; // "answers", …
    bool does_database_answer;
    bool is_covered; // no reason is known why a second leader is possible
    bool is_config_valid;
};

// Appends the body and returns the HTTP status: 404 for a path that is none. `query` may say
// "verbose": all checks then, not only the first that fails.
int http_answer(const struct http_view *view, struct httphead_text path,
                struct httphead_text query, struct buf *body);
