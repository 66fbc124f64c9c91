// SPDX-License-Identifier: Apache-2.0
#pragma once
// prepare: everything that metafence-run does once, before its loop: the only place that may
// block or allocate.

#include "fence/run_state.h"

// run->options is set, the rest is zero. Errors: as of the parts, with their names.
must_check int prepare(struct run *run, struct err *err);
