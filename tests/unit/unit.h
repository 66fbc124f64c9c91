// SPDX-License-Identifier: Apache-2.0
#pragma once
// unit: what every cmocka program includes, with the headers that cmocka wants before itself,
// and one main that takes a filter from the environment (./dev test unit -k NAME).

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
// clang-format on

// METAFENCE_TEST_FILTER is a cmocka pattern: '*' and '?' are wildcards.
#define UNIT_MAIN(tests)                                                                       \
    int main(void)                                                                             \
    {                                                                                          \
        cmocka_set_test_filter(getenv("METAFENCE_TEST_FILTER"));                               \
        return cmocka_run_group_tests(tests, NULL, NULL);                                      \
    }
