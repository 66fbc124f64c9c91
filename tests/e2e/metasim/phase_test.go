// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestInPhase holds the runs in which the phase switch forces an outcome that is random otherwise. It is
// not parallel to the other tests: these make the machine too busy for plans in tenths of a second.
func TestInPhase(t *testing.T) {
	for name, run := range map[string]func(t *testing.T){
		"B2StallAroundTheLease": stallAroundTheLease,
		"B10Outage":             outageFixedPhase,
		"C2Backdated":           func(t *testing.T) { forcedRow(t, backdate) },
		"DDelete":               func(t *testing.T) { forcedRow(t, deleteRow) },
		"E3Truncate":            func(t *testing.T) { forcedRow(t, `TRUNCATE election_leader`) },
		"I2TermOfATwin":         termOfATwin,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}
