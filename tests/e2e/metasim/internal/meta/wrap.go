// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The environment tells a re-executed process what is done already; values are unset on reading.
const (
	envWrapped = "METASIM_WRAPPED"
	envSession = "METASIM_SESSION"
	envChild   = "METASIM_CHILD"
)

// wrap puts a shell or a session around the process; done means that this process was only the outer
// part and ends with code.
func wrap(o *options) (code int, done bool) {
	if o.wrapperShell && !taken(envWrapped) {
		return belowShell(), true
	}
	if o.setsid && !taken(envSession) {
		return ownSession()
	}
	return 0, false
}

func taken(variable string) bool {
	set := os.Getenv(variable) != ""
	_ = os.Unsetenv(variable)
	return set
}

// belowShell replaces the process by a shell that waits for it as a child: a signal to the shell
// alone leaves the child running.
func belowShell() int {
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	argv := append([]string{"sh", "-c", `"$@"; rc=$?; exit $rc`, "sh", self}, os.Args[1:]...)
	return fail(syscall.Exec("/bin/sh", argv, append(os.Environ(), envWrapped+"=1")))
}

// ownSession makes this process a session leader; if it leads a process group already, a child is
// made one instead and waited for.
func ownSession() (int, bool) {
	_, err := syscall.Setsid()
	if err == nil {
		return 0, false
	}
	if !errors.Is(err, syscall.EPERM) {
		return fail(err), true
	}
	self, err := os.Executable()
	if err != nil {
		return fail(err), true
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), envSession+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exitStatus(exit), true
		}
		return fail(err), true
	}
	return 0, true
}

func exitStatus(e *exec.ExitError) int {
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return e.ExitCode()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "metasim meta-node:", err)
	return 1
}

// leaveChild starts a daemon by a double fork: it is nobody's child, keeps the service port open
// and goes on ticking under this incarnation's name.
func (n *node) leaveChild(lis net.Listener) {
	file, err := lis.(*net.TCPListener).File()
	if err != nil {
		n.panic("double fork: %v", err)
	}
	defer func() { _ = file.Close() }()
	self, err := os.Executable()
	if err != nil {
		n.panic("double fork: %v", err)
	}
	// The shell in the middle ends at once, which orphans its background job.
	argv := append([]string{"-c", `"$@" & exit 0`, "sh", self}, os.Args[1:]...)
	cmd := exec.Command("/bin/sh", argv...)
	cmd.Env = append(os.Environ(), envChild+"="+n.inc)
	cmd.ExtraFiles = []*os.File{file}
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		n.panic("double fork: %v", err)
	}
}

// childMain is the daemon of leaveChild. It ends by itself after --child-life, so that a failed test
// leaves nothing behind for long.
func childMain(o *options, j *journal, inc string) int {
	n := &node{opt: o, inc: inc, jour: j}
	if o.setsid {
		if _, err := syscall.Setsid(); err != nil {
			return fail(err)
		}
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	j.Line("child", kv("ppid", os.Getppid()), kv("sid", sessionID()))
	n.connectPool()
	n.startWork()
	time.Sleep(o.childLife)
	return 0
}

func sessionID() int {
	sid, err := unix.Getsid(0)
	if err != nil {
		return -1
	}
	return sid
}
