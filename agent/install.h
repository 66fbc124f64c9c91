// SPDX-License-Identifier: Apache-2.0
#pragma once
// install: puts a copy of metafence-run where meta's container finds it. A copy that is there
// and the same is left alone; another is replaced by a rename, so that whoever runs the old one
// keeps it and nobody ever sees half a file.

#include "base/err.h"
#include "base/loop.h"

struct install;

// Copies the metafence-run that lies beside our own program to `target`, now or, after an
// error that is logged once, as soon as that is possible. NULL when `target` is "". `target` is
// borrowed.
struct install *install_new(struct loop *loop, const char *target);
// Accepts NULL.
void install_free(struct install *install);

// Why the copy is not in place; NULL: it is, or none is wanted. Borrowed until the next turn.
const char *install_error(const struct install *install);

// One copy, mode 0555. Blocks for as long as the two disks do. Errors: DENIED with the path.
must_check int install_copy(const char *source, const char *target, struct err *err);
