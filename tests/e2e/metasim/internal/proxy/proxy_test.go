// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	soon  = 3 * time.Second
	quiet = 200 * time.Millisecond // how long nothing must come
)

// rig is an echo server behind a proxy.
type rig struct {
	t      *testing.T
	p      *Proxy
	target net.Listener
}

func newRig(t *testing.T) *rig {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go echo(target)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := front.Addr().String()
	_ = front.Close()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	t.Cleanup(func() { _ = target.Close() })
	r := &rig{t: t, p: New(addr, target.Addr().String()), target: target}
	if err := r.p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

func echo(lis net.Listener) {
	for {
		c, err := lis.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}()
	}
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.p.listen)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) command(line string) {
	r.t.Helper()
	if _, err := r.p.Command(line); err != nil {
		r.t.Fatal(err)
	}
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// receive reads exactly the text, or fails.
func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != want {
		t.Fatalf("got %q, %v, want %q", buf, err, want)
	}
}

// nothing checks that no byte and no end comes.
func nothing(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(quiet))
	n, err := c.Read(make([]byte, 1))
	if nerr, ok := errors.AsType[net.Error](err); n != 0 || !ok || !nerr.Timeout() {
		t.Fatalf("got %d bytes, %v, want silence", n, err)
	}
}

func mustReset(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(soon))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}

func TestStallHoldsAndDelivers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.dial()
	send(t, old, "a")
	receive(t, old, "a")
	r.command("mode stall")
	send(t, old, "b")
	fresh := r.dial()
	send(t, fresh, "c")
	nothing(t, old)
	nothing(t, fresh)
	r.command("mode pass")
	receive(t, old, "b")
	receive(t, fresh, "c")
}

func TestReset(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.dial()
	send(t, old, "a")
	receive(t, old, "a")
	r.command("mode reset")
	mustReset(t, old)
	if c, err := net.Dial("tcp", r.p.listen); err == nil {
		mustReset(t, c)
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	r.command("mode pass")
	c := r.dial()
	send(t, c, "x")
	receive(t, c, "x")
}

func TestOldDeadStaysDead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.dial()
	send(t, old, "a")
	receive(t, old, "a")
	r.command("mode old-dead")
	send(t, old, "b")
	fresh := r.dial()
	send(t, fresh, "c")
	receive(t, fresh, "c")
	nothing(t, old)
	r.command("mode pass")
	nothing(t, old)
	send(t, fresh, "d")
	receive(t, fresh, "d")
}

func TestDropNew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.dial()
	send(t, old, "a")
	receive(t, old, "a")
	r.command("mode drop-new")
	fresh := r.dial()
	send(t, fresh, "c")
	nothing(t, fresh)
	send(t, old, "b")
	receive(t, old, "b")
	r.command("mode pass")
	receive(t, fresh, "c")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.dial()
	send(t, old, "a")
	receive(t, old, "a")
	r.command("mode refuse")
	if _, err := net.Dial("tcp", r.p.listen); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, want refused", err)
	}
	r.command("mode pass")
	c := r.dial()
	send(t, c, "x")
	receive(t, c, "x")
}

func TestCuts(t *testing.T) {
	t.Parallel()
	for line, passes := range map[string]string{
		"cut-after 3":              "abc", // three bytes reach the server; their echo is held
		"cut-before-query efg":     "",
		"cut-before-answer efg":    "",
		"cut-after 8 stall":        "",
		"cut-before-query absent!": "abcdefgh",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.dial()
			send(t, c, "0")
			receive(t, c, "0")
			r.command(line)
			send(t, c, "abcdefgh")
			if line == "cut-before-query absent!" {
				receive(t, c, passes)
				return
			}
			nothing(t, c)
			up := r.p.up.Load() - 1
			want := map[string]int64{"cut-after 3": 3, "cut-before-query efg": 0, "cut-before-answer efg": 8, "cut-after 8 stall": 8}[line]
			if up != want {
				t.Errorf("%d bytes reached the server, want %d", up, want)
			}
			r.command("mode pass")
			receive(t, c, "abcdefgh")
		})
	}
}

func TestLatencyAndLossKeepOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.command("latency 50")
	c := r.dial()
	begin := time.Now()
	send(t, c, "a")
	receive(t, c, "a")
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("round trip %v with 50 ms each way", took)
	}
	r.command("latency 0")
	r.command("loss 30")
	for _, s := range strings.Split("abcdefghij", "") {
		send(t, c, s)
	}
	_ = c.SetReadDeadline(time.Now().Add(4 * soon))
	buf := make([]byte, 10)
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "abcdefghij" {
		t.Errorf("%q, %v", buf, err)
	}
}

// A target that refuses is shown as a refusal, and its return as well.
func TestMirrorsRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	addr := r.target.Addr().String()
	_ = r.target.Close()
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", r.p.listen)
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			_ = c.Close()
		}
		if time.Now().After(end) {
			t.Fatal("the proxy's port stays open")
		}
	}
	again, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	go echo(again)
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", r.p.listen)
		if err == nil {
			send(t, c, "x")
			receive(t, c, "x")
			return
		}
		if time.Now().After(end) {
			t.Fatal("the proxy's port stays closed")
		}
	}
}

func TestBadCommands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, line := range []string{"", "mode", "mode off", "latency -1", "latency x", "loss 100", "loss -1", "cut-after 0",
		"cut-after x", "cut-after 5 off", "cut-before-query", "cut-before-answer", "stat"} {
		if _, err := r.p.Command(line); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
	if s, err := r.p.Command("stats"); err != nil || !strings.Contains(s, "mode=pass listening=true conns=0") {
		t.Errorf("stats: %q, %v", s, err)
	}
}
