// SPDX-License-Identifier: Apache-2.0
#pragma once
// state: the state file. One struct fence_status, overwritten in place through a file that was
// opened once, so that a full disk or a vanished directory cannot hinder a write; readers retry
// on a checksum that does not fit. One metafence-run at a time owns it (flock).

#include <stdbool.h>

#include "fence/proto.h"

// Opens and locks; *ret_left has what an earlier metafence-run left, *ret_has_left whether it
// was whole. Returns the fd. Errors: CONFLICT (another one runs), DENIED (errno).
must_check int state_open(const char *path, int *ret_fd, struct fence_status *ret_left,
                          bool *ret_has_left, struct err *err);

// *status must be sealed. Errors: TRANSIENT.
must_check int state_write(int fd, const struct fence_status *status, struct err *err);

// For probes: reads without lock. Errors: TRANSIENT (no such file yet), INVALID (broken, also
// after retries).
must_check int state_read(const char *path, struct fence_status *ret, struct err *err);

// The kernel's boot id; empty if it has none.
void state_boot_id(char *buf, size_t size);
