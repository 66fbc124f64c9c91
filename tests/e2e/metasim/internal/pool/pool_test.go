// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const acquireTimeout = 600 * time.Millisecond

// fake is a server that logs anybody in and answers Sync, unless told otherwise.
type fake struct {
	lis      net.Listener
	starting atomic.Int32 // so many logins are refused with "starting up"
	reset    atomic.Bool  // connects are reset
	deaf     atomic.Bool  // Sync is not answered
	logins   atomic.Int32
}

func newFake(t *testing.T) *fake {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{lis: lis}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go f.serve(c.(*net.TCPConn))
		}
	}()
	return f
}

func (f *fake) serve(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	if f.reset.Load() {
		_ = c.SetLinger(0)
		return
	}
	be := pgproto3.NewBackend(c, c)
	if _, err := be.ReceiveStartupMessage(); err != nil {
		return
	}
	if f.starting.Add(-1) >= 0 {
		be.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "starting up"})
		_ = be.Flush()
		return
	}
	f.logins.Add(1)
	be.Send(&pgproto3.AuthenticationOk{})
	be.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if be.Flush() != nil {
		return
	}
	for {
		msg, err := be.Receive()
		if err != nil {
			return
		}
		if _, ok := msg.(*pgproto3.Sync); ok && !f.deaf.Load() {
			be.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if be.Flush() != nil {
				return
			}
		}
	}
}

func (f *fake) options(t *testing.T) Options {
	t.Helper()
	cfg, err := pgconn.ParseConfig("sslmode=disable user=u database=d")
	if err != nil {
		t.Fatal(err)
	}
	addr := f.lis.Addr().(*net.TCPAddr)
	cfg.Host, cfg.Port = "127.0.0.1", uint16(addr.Port)
	return Options{Max: 2, Min: 1, Acquire: acquireTimeout, Idle: time.Minute, Config: cfg}
}

func (f *fake) open(t *testing.T, maxSize int) *Pool {
	t.Helper()
	o := f.options(t)
	o.Max = maxSize
	p, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustTimeOut(t *testing.T, p *Pool) {
	t.Helper()
	begin := time.Now()
	_, err := p.Acquire(t.Context())
	took := time.Since(begin)
	if !errors.Is(err, ErrTimedOut) || took < acquireTimeout-10*time.Millisecond || took > 3*acquireTimeout {
		t.Errorf("%v after %v, want the pool's time-out after %v", err, took, acquireTimeout)
	}
}

func mustAcquire(t *testing.T, p *Pool) *Conn {
	t.Helper()
	c, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRefusedIsRetriedToTheDeadline(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	o := f.options(t)
	_ = f.lis.Close()
	begin := time.Now()
	_, err := Open(t.Context(), o)
	if took := time.Since(begin); !errors.Is(err, ErrTimedOut) || took < acquireTimeout-10*time.Millisecond {
		t.Errorf("%v after %v", err, took)
	}
}

func TestStartingUpIsRetried(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.starting.Store(3)
	begin := time.Now()
	f.open(t, 2)
	if took := time.Since(begin); took < 70*time.Millisecond {
		t.Errorf("took %v, want 10 + 20 + 40 ms of back-off", took)
	}
}

func TestResetIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.reset.Store(true)
	begin := time.Now()
	_, err := Open(t.Context(), f.options(t))
	if err == nil || errors.Is(err, ErrTimedOut) || time.Since(begin) > acquireTimeout/2 {
		t.Errorf("%v after %v, want the reset itself at once", err, time.Since(begin))
	}
}

func TestOtherLoginErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	if transient(&pgconn.PgError{Code: "28P01"}) || !transient(&pgconn.PgError{Code: "53300"}) ||
		!transient(syscall.ECONNREFUSED) || transient(syscall.ECONNRESET) {
		t.Error("only 53300, 57P03 and a refused connect are transient")
	}
}

// The ping of a dead idle session eats the whole time-out; only then is the session given up.
func TestDeadPingEatsTheTimeout(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.open(t, 2)
	f.deaf.Store(true)
	mustTimeOut(t, p)
	f.deaf.Store(false)
	mustAcquire(t, p)
	if n := f.logins.Load(); n != 2 {
		t.Errorf("%d logins, want a second one", n)
	}
}

func TestFullPool(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.open(t, 1)
	c := mustAcquire(t, p)
	mustTimeOut(t, p)
	p.Release(c)
	mustAcquire(t, p)
	if n := f.logins.Load(); n != 1 {
		t.Errorf("%d logins, want the same session again", n)
	}
}

// A session comes back only after a ping without a deadline: a dead one keeps its permit.
func TestReleaseKeepsThePermitOfADeadSession(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.open(t, 1)
	c := mustAcquire(t, p)
	f.deaf.Store(true)
	p.Release(c)
	mustTimeOut(t, p)
	mustTimeOut(t, p)
}

func TestIdleSessionsAreUsedInTurn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.open(t, 2)
	a, b := mustAcquire(t, p), mustAcquire(t, p)
	p.release(a)
	p.release(b)
	if got := mustAcquire(t, p); got != a {
		t.Error("want the one that came back first")
	}
}

func TestCancelClosesOnlyThePing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	p := f.open(t, 1)
	f.deaf.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	begin := time.Now()
	if _, err := p.Acquire(ctx); err == nil || time.Since(begin) > acquireTimeout/2 {
		t.Errorf("%v after %v, want an end with the context", err, time.Since(begin))
	}
	f.deaf.Store(false)
	mustAcquire(t, p)
}

func TestSemIsFair(t *testing.T) {
	t.Parallel()
	s := newSem(1)
	if err := s.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	order := make(chan int, 2)
	for k := range 2 {
		go func() {
			if s.acquire(context.Background()) == nil {
				order <- k
				s.release()
			}
		}()
		for s.waiting() != k+1 {
			time.Sleep(time.Millisecond)
		}
	}
	if s.tryAcquire() {
		t.Error("nobody may overtake")
	}
	s.release()
	if a, b := <-order, <-order; a != 0 || b != 1 {
		t.Errorf("served %d before %d", a, b)
	}
}

func (s *sem) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiters.Len()
}
