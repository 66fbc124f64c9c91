// SPDX-License-Identifier: Apache-2.0

// Package process ends processes as the originals end.
package process

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"metasim/internal/journal"
)

// Abort ends the process by a real SIGABRT (134 in a shell), as a panic in the original does.
// Go's own handler would turn it into exit status 2, so the default action is restored first.
func Abort(j *journal.Journal) {
	j.Line("exit", journal.KV("code", 134))
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	signal.Reset(syscall.SIGABRT)
	var act [64]byte // struct kernel_sigaction, all zero: SIG_DFL, no flags, empty mask
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGABRT),
		uintptr(unsafe.Pointer(&act[0])), 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
	select {} // the signal ends us
}

// Exit notes the status and ends the process with it.
func Exit(j *journal.Journal, code int) {
	j.Line("exit", journal.KV("code", code))
	os.Exit(code)
}
