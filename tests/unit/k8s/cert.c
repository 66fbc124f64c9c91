// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/unit.h"

#include "tests/unit/k8s/cert.h"

#include <stdio.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/buf.h"
#include "tests/unit/k8s/script.h"

#define HOUR_S 3600L

struct cert_authority {
    EVP_PKEY *key;
    X509 *cert;
};

static X509 *make(const char *name, EVP_PKEY *key, const struct cert_authority *issuer,
                  long until_s)
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);

    assert_non_null(cert);
    assert_int_equal(X509_set_version(cert, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++), 1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(cert), -48 * HOUR_S));
    assert_non_null(X509_gmtime_adj(X509_getm_notAfter(cert), until_s));
    assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                                (const unsigned char *)name, -1, -1, 0),
                     1);
    assert_int_equal(
        X509_set_issuer_name(cert, issuer ? X509_get_subject_name(issuer->cert) : subject), 1);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    return cert;
}

static void extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

struct cert_authority *cert_authority_new(const char *name)
{
    struct cert_authority *authority = calloc(1, sizeof(*authority));

    assert_non_null(authority);
    authority->key = EVP_EC_gen("P-256");
    assert_non_null(authority->key);
    authority->cert = make(name, authority->key, NULL, 48 * HOUR_S);
    extend(authority->cert, NID_basic_constraints, "critical,CA:TRUE");
    assert_true(X509_sign(authority->cert, authority->key, EVP_sha256()) > 0);
    return authority;
}

void cert_authority_free(struct cert_authority *authority)
{
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
    free(authority);
}

void cert_authority_write(const struct cert_authority *authority, const char *path)
{
    BIO *pem = BIO_new(BIO_s_mem());
    struct buf text = {0};
    char *bytes = NULL;
    long len = 0;

    assert_non_null(pem);
    assert_int_equal(PEM_write_bio_X509(pem, authority->cert), 1);
    len = BIO_get_mem_data(pem, &bytes);
    buf_append(&text, bytes, (size_t)len);
    script_write_file(path, text.data);
    buf_done(&text);
    BIO_free(pem);
}

struct ssl_ctx_st *cert_server(const struct cert_authority *authority, const char *alt_name,
                               bool is_expired)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make("server", key, authority, is_expired ? -HOUR_S / 12 : HOUR_S);

    assert_non_null(context);
    extend(cert, NID_subject_alt_name, alt_name);
    assert_true(X509_sign(cert, authority->key, EVP_sha256()) > 0);
    assert_int_equal(SSL_CTX_use_certificate(context, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return context;
}
