// SPDX-License-Identifier: Apache-2.0

// Package process ends processes as the originals end.
package process

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"metasim/internal/journal"
)

// Abort ends the process by a real SIGABRT (134 in a shell), as a panic in the original does.
// Go's own handler would turn it into exit status 2, so the default action is restored first.
// The first process of a container gets no signal whose action is the default: there it is abort(3)'s next means,
// an instruction that traps, which ends it by SIGSEGV (139).
func Abort(j *journal.Journal) {
	j.Line("exit", journal.KV("code", 134))
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	restoreDefault(syscall.SIGABRT)
	restoreDefault(syscall.SIGSEGV)
	runtime.LockOSThread()
	_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGABRT) // where it ends us it does not return
	*nowhere = 0
	select {} // for the compiler
}

// nowhere is a variable so that the compiler does not see the fault.
var nowhere *int

// restoreDefault goes around Go's runtime, which handles both signals whatever signal.Reset says.
func restoreDefault(s syscall.Signal) {
	var act [64]byte // struct kernel_sigaction, all zero: SIG_DFL, no flags, empty mask
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&act[0])), 0, 8, 0, 0)
}

// Exit notes the status and ends the process with it.
func Exit(j *journal.Journal, code int) {
	j.Line("exit", journal.KV("code", code))
	os.Exit(code)
}
