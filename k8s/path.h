// SPDX-License-Identifier: Apache-2.0
#pragma once
// path: paths of the API's resources, escaped.

#include "base/buf.h"

// Appends `text` with everything percent-encoded but letters, digits and "-._~".
void k8s_put_escaped(struct buf *path, const char *text);
// "/api/v1/namespaces/<ns>/pods", and "/<name>" if `name` is not NULL.
void k8s_put_pods_path(struct buf *path, const char *name_space, const char *name);
// "/apis/<group>/namespaces/<ns>/<resource>"; group with its version, "apps/v1".
void k8s_put_collection_path(struct buf *path, const char *group, const char *name_space,
                             const char *resource);
