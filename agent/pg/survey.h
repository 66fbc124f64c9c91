// SPDX-License-Identifier: Apache-2.0
#pragma once
// survey: what `metafence doctor` wants to know of the meta store, beside sql_status. For the
// command line only: it blocks.

#include "agent/pg/install.h"

struct pg_survey {
    struct sql_status status;
    int version_wanted;       // of the schema, by this program
    char role[64];            // ours
    char meta_role[64];       // owner of the leader table; "": there is none
    bool may_act;             // this role may call what an agent calls
    bool may_signal;          // the schema's owner may end the metas' sessions
    int64_t untagged;         // sessions of the metas' role that carry no tag, now
    int64_t statement_ms;     // statement_timeout of the metas' role here; 0: none
    int64_t lock_ms;          // lock_timeout, the same
    int64_t temp_limit_kb;    // temp_file_limit of the metas' role; -1: none
    int64_t prepared;         // prepared transactions of this database
    char partitions[200];     // guarded tables that are a part of another, cut
    int64_t standbys;         // connected
    bool is_synchronous;      // synchronous_standby_names is set
    int64_t superseded_alive; // superseded tags that still have sessions
};

// Errors: as for any read. Without rights a value is what an empty database would show.
must_check int pg_survey(const struct sql_options *options, struct pg_survey *ret,
                         struct err *err);
