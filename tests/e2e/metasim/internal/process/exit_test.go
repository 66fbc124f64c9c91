// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"metasim/internal/journal"
)

const journalVariable = "METASIM_TEST_ABORT"

// TestMain is also the process that aborts.
func TestMain(m *testing.M) {
	if path := os.Getenv(journalVariable); path != "" {
		j, err := journal.Open(path, "test", "", journal.NewIncarnation())
		if err != nil {
			panic(err)
		}
		Abort(j)
	}
	os.Exit(m.Run())
}

// abortWith runs Abort in a process of its own and says which signal ended it.
func abortWith(t *testing.T, attributes *syscall.SysProcAttr) syscall.Signal {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), journalVariable+"="+filepath.Join(t.TempDir(), "journal"))
	c.SysProcAttr = attributes
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	patience := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer patience.Stop()
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) {
		t.Fatalf("ended with %v", err)
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}

func TestAbort(t *testing.T) {
	if got := abortWith(t, nil); got != syscall.SIGABRT {
		t.Errorf("ended by %v", got)
	}
}

// A container's first process gets no signal that it does not handle.
func TestAbortAsFirstProcess(t *testing.T) {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if got := abortWith(t, attributes); got != syscall.SIGSEGV {
		t.Errorf("ended by %v", got)
	}
}
