// SPDX-License-Identifier: Apache-2.0
#pragma once
// sql: the SQL files of this folder as strings of the binary, so that what is installed is what
// was tested. Placeholders: @LEADER_TABLE@ and @ROLE@ stand for quoted names and occur nowhere
// else.

#define SQL_SCHEMA       "metafence"
#define SQL_VERSION      2 // the schema_version that sql_schema leaves behind
#define SQL_TRIGGER_NAME "metafence_term"
#define SQL_HOLD_NAME    "metafence_hold"
#define SQL_CHANNEL      "metafence" // NOTIFY "<term> <owner tag or -> <owner id>"
// NOTIFY "recovery <id> <term> <scope> <attempt>" and "passed <id> <term> <why>"
#define SQL_RECOVERY_CHANNEL "metafence_recovery"
#define SQL_LEADER_TABLE     "@LEADER_TABLE@"
#define SQL_ROLE             "@ROLE@"

extern const char sql_schema[];  // no placeholder; idempotent
extern const char sql_trigger[]; // SQL_LEADER_TABLE; not idempotent
extern const char sql_grant[];   // SQL_LEADER_TABLE, SQL_ROLE; idempotent
extern const char sql_owner[];   // SQL_LEADER_TABLE; idempotent
extern const char sql_remove[];  // no placeholder; idempotent
