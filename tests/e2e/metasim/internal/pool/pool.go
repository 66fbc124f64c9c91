// SPDX-License-Identifier: Apache-2.0

// Package pool is a connection pool with the semantics of sqlx 0.8: the very ones that turn a
// network cut into a zombie leader. One deadline covers the wait for a permit, the ping of an idle
// session and all connect attempts; a refused connect is retried inside it, a reset one is not.
package pool

import (
	"context"
	"errors"
	"log"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrTimedOut is the end of an acquire at its deadline.
var ErrTimedOut = errors.New("Failed to acquire connection from pool: Connection pool timed out")

const (
	firstBackoff       = 10 * time.Millisecond
	defaultLifetime    = 30 * time.Minute
	maintenancePatient = 5 * time.Minute
)

// Options of a pool. Acquire is the only deadline that counts.
type Options struct {
	Max, Min      int
	Acquire, Idle time.Duration
	Config        *pgconn.Config
}

// Pool hands out sessions; idle ones in the order in which they came back.
type Pool struct {
	opt  Options
	sem  *sem
	mu   sync.Mutex
	size int
	idle []*Conn
}

// Open connects the minimum of sessions and tests one, as at the start of a meta node.
func Open(ctx context.Context, opt Options) (*Pool, error) {
	opt.Config.DialFunc = (&net.Dialer{KeepAlive: -1}).DialContext // sqlx sets no keepalive
	opt.Config.ConnectTimeout = 0
	p := &Pool{opt: opt, sem: newSem(opt.Max)}
	cctx, cancel := context.WithTimeout(ctx, opt.Acquire)
	defer cancel()
	if err := p.fillMin(cctx); err != nil {
		return nil, err
	}
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	p.release(c)
	go p.maintain()
	return p, nil
}

// Acquire returns a tested session. A cancelled ctx closes a session whose ping is under way.
func (p *Pool) Acquire(parent context.Context) (*Conn, error) {
	ctx, cancel := context.WithTimeout(parent, p.opt.Acquire)
	defer cancel()
	if p.sem.acquire(ctx) != nil {
		return nil, ErrTimedOut
	}
	c := p.popIdle()
	if c != nil {
		if c = p.check(ctx, c); c != nil {
			return c, nil
		}
	} else {
		p.addSize(1)
	}
	c, err := p.connect(ctx)
	if err != nil {
		p.addSize(-1)
		p.sem.release()
		return nil, err
	}
	return c, nil
}

// check tests an idle session; nil means it is gone and its place is ours.
func (p *Pool) check(ctx context.Context, c *Conn) *Conn {
	if time.Since(c.created) > defaultLifetime {
		c.closeNice()
		return nil
	}
	if err := c.ping(ctx); err != nil {
		if ctx.Err() == nil {
			log.Printf("INFO sqlx_core::pool: ping on idle connection returned error: %v", err)
		}
		c.closeHard()
		return nil
	}
	return c
}

// connect retries what looks like a server that is starting up, until ctx's deadline.
func (p *Pool) connect(ctx context.Context) (*Conn, error) {
	backoff := firstBackoff
	deadline, _ := ctx.Deadline()
	maxBackoff := time.Until(deadline) / 5
	for {
		if ctx.Err() != nil {
			return nil, ErrTimedOut
		}
		c, err := dial(ctx, p.opt.Config)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ErrTimedOut
		}
		if !transient(err) {
			return nil, err
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return nil, ErrTimedOut
		}
		backoff = min(backoff*2, maxBackoff)
	}
}

func transient(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code == "53300" || pgErr.Code == "57P03"
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Release gives a session back in the background, after a ping without a deadline: until that is
// answered its permit stays taken.
func (p *Pool) Release(c *Conn) {
	go func() {
		if time.Since(c.created) <= defaultLifetime && c.ping(context.Background()) == nil {
			p.release(c)
			return
		}
		c.closeHard()
		p.addSize(-1)
		p.sem.release()
		p.tryFillMin(maintenancePatient)
	}()
}

// Exec runs one statement in autocommit. Cancelling ctx matters only until the session is acquired:
// a statement that was sent runs to its end.
func (p *Pool) Exec(ctx context.Context, st Statement) (Result, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return Result{}, err
	}
	defer p.Release(c)
	return c.Exec(st)
}

func (p *Pool) release(c *Conn) {
	p.mu.Lock()
	c.idleSince = time.Now()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	p.sem.release()
}

func (p *Pool) popIdle() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	c := p.idle[0]
	p.idle = p.idle[1:]
	return c
}

func (p *Pool) addSize(n int) {
	p.mu.Lock()
	p.size += n
	p.mu.Unlock()
}

func (p *Pool) belowMin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size < p.opt.Min
}

// Begin takes a session and opens a transaction on it.
func (p *Pool) Begin(ctx context.Context) (*Tx, error) {
	c, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(Statement{SQL: "BEGIN"}); err != nil {
		p.Release(c)
		return nil, err
	}
	return &Tx{pool: p, conn: c}, nil
}

// Tx is a transaction. It ends with Commit or Rollback, which give the session back.
type Tx struct {
	pool *Pool
	conn *Conn
}

// Exec runs one statement of the transaction.
func (t *Tx) Exec(st Statement) (Result, error) { return t.conn.Exec(st) }

// Commit ends the transaction; after an error its fate is unknown if the session was lost.
func (t *Tx) Commit() error {
	res, err := t.conn.Exec(Statement{SQL: "COMMIT"})
	t.pool.Release(t.conn)
	if err == nil && res.Tag != "COMMIT" { // Postgres answers ROLLBACK to the COMMIT of a failed transaction
		return errors.New("the transaction was rolled back: " + res.Tag)
	}
	return err
}

// Rollback ends it. An error is found again by whoever takes the session next.
func (t *Tx) Rollback() {
	_, _ = t.conn.Exec(Statement{SQL: "ROLLBACK"})
	t.pool.Release(t.conn)
}
