// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"metasim/internal/clock"
)

// called runs `metasim call`: its exit status, what it printed, and what it said about an error.
func called(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"call"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(stdout.String()), stderr.String()
}

func TestCall(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--workers", "v3.0", "--jobs", "0"}})
	l := c.start()
	worker := fmt.Sprintf("127.0.0.1:%d", nextPort(t))
	for _, step := range []struct{ words, want string }{
		{"register " + worker, `{"worker":1}`},
		{"list", fmt.Sprintf(`[{"worker":1,"host":"%s","state":1}]`, worker)},
		{"actors", `[]`},
		{"recover", `{}`},
		{"delete " + worker, `{}`},
		{"list", `[]`},
	} {
		code, out, said := called(t, append([]string{l.id}, strings.Fields(step.words)...)...)
		if code != 0 || out != step.want {
			t.Errorf("%s: exit %d %q %s, want %s", step.words, code, out, said, step.want)
		}
	}
	for _, bad := range []struct {
		words, want string
		code        int
	}{
		{l.id + " delete " + worker, "InvalidArgument: Invalid parameter: worker not found!", 1},
		{c.nodes[1].id + " actors", "Unimplemented", 1},
		{l.id + " delete nowhere", `delete "nowhere": give host:port`, 2},
		{l.id + " register", "usage", 2},
		{l.id + " list " + worker, "usage", 2},
		{l.id + " dance", "usage", 2},
		{l.id, "usage", 2},
	} {
		code, out, said := called(t, strings.Fields(bad.words)...)
		if code != bad.code || out != "" || !strings.Contains(said, bad.want) {
			t.Errorf("%s: exit %d %q %q, want %d and %q", bad.words, code, out, said, bad.code, bad.want)
		}
	}
}

// A compute node that is back, but not yet with a meta.
func TestComputePausesBeforeItRegisters(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 1, flags: []string{"--workers", "head", "--jobs", "0"}})
	c.start()
	compute := c.newCompute()
	for _, point := range []string{"start", "registered"} {
		at := clock.BootNS()
		release := compute.pauseFile(point)
		compute.startCompute("--pause-dir", compute.pauseDir())
		if got := compute.awaitEvent("paused", at).Fields["at"]; got != point {
			t.Fatalf("paused at %s, want %s", got, point)
		}
		if has := len(compute.since("registered", at)) > 0; has != (point == "registered") {
			t.Errorf("%s: registered %v", point, has)
		}
		if compute.has("activated", at) {
			t.Errorf("%s: activated", point)
		}
		release()
		if id := compute.worker(at); id != "1" {
			t.Errorf("worker %s", id)
		}
		compute.signal(syscall.SIGKILL)
		compute.mustExit(137, patience)
	}
}
