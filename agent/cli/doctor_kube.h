// SPDX-License-Identifier: Apache-2.0
#pragma once
// doctor_kube: the part of `metafence doctor` that asks the Kubernetes API. Blocking. It
// changes nothing: rights are asked for, and the one patch that must be refused is a dry run.

struct config;
struct doctor;

// Rights, the policy, the own pod and those beside it. Adds findings, also when nobody answers.
void doctor_kube(struct doctor *doctor, const struct config *config);
