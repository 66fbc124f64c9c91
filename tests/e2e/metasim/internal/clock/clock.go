// SPDX-License-Identifier: Apache-2.0

// Package clock reads the one clock that all parts of a test compare: CLOCK_BOOTTIME.
package clock

import "golang.org/x/sys/unix"

// BootNS returns CLOCK_BOOTTIME in nanoseconds. The call can't fail on Linux.
func BootNS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error())
	}
	return ts.Nano()
}
