// SPDX-License-Identifier: Apache-2.0
#pragma once
// err: a caller-owned error value. No allocation, no global state; context is wrapped around it
// on the way up. Expected outcomes ("another id holds the lease") are enum results, never
// errors.

#define must_check __attribute__((warn_unused_result))

// What the caller may do about it.
enum err_kind {
    ERR_NONE = 0,
    ERR_TRANSIENT,       // try again
    ERR_CONFLICT,        // read again, then decide
    ERR_DENIED,          // configuration or rights: trying again alone does not help
    ERR_UNKNOWN_OUTCOME, // it was sent and not answered: it may have happened
    ERR_INVALID,         // bad input from outside
    ERR_BUG,             // broken invariant of our own
};

struct err {
    enum err_kind kind;
    int code; // errno, HTTP status or 0
    char msg[256];
};

// Fills *err and returns -1, so that a failing function ends with `return err_set(...)`.
int err_set(struct err *err, enum err_kind kind, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

// Puts "context: " in front of the message, keeps kind and code, returns -1. A message that
// gets too long loses its end, never its context.
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
