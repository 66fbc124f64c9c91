// SPDX-License-Identifier: Apache-2.0
#include "k8s/path.h"

#include <stdbool.h>

static bool is_plain(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_' || c == '~';
}

void k8s_put_escaped(struct buf *path, const char *text)
{
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if (is_plain(c))
            buf_putc(path, *p);
        else
            buf_printf(path, "%%%02X", c);
    }
}

void k8s_put_pods_path(struct buf *path, const char *name_space, const char *name)
{
    buf_puts(path, "/api/v1/namespaces/");
    k8s_put_escaped(path, name_space);
    buf_puts(path, "/pods");
    if (!name)
        return;
    buf_putc(path, '/');
    k8s_put_escaped(path, name);
}

void k8s_put_collection_path(struct buf *path, const char *group, const char *name_space,
                             const char *resource)
{
    buf_printf(path, "/apis/%s/namespaces/", group);
    k8s_put_escaped(path, name_space);
    buf_printf(path, "/%s", resource);
}
