// SPDX-License-Identifier: Apache-2.0
#pragma once
// cert: certificate authorities and server certificates made on the spot, for 127.0.0.1.

#include <stdbool.h>

struct ssl_ctx_st;

struct cert_authority;

struct cert_authority *cert_authority_new(const char *name);
void cert_authority_free(struct cert_authority *authority);
// Its certificate as PEM, for a CA file.
void cert_authority_write(const struct cert_authority *authority, const char *path);
// What a server needs whose certificate it has signed: for the address, or for another name;
// valid now, or expired.
struct ssl_ctx_st *cert_server(const struct cert_authority *authority, const char *alt_name,
                               bool is_expired);
