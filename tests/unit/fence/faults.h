// SPDX-License-Identifier: Apache-2.0
#pragma once
// faults: the n-th call of libc that can fail, fails. A program that links faults.c has its own
// open, read, socket, fork, …: each counts, and passes the call on unless its turn has come.

#include <stdbool.h>

// From here on: call number n (from 1) fails with that errno, once. 0: none.
void faults_arm(int n, int code);

// Calls of the test's own are neither counted nor fail.
void faults_spare(bool is_spared);

// Counts and fails no more. True: the failure has come.
bool faults_disarm(void);

// The one that failed, "socket"; "" before it has.
const char *faults_hit(void);
