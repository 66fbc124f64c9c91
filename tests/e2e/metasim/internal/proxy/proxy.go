// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Proxy forwards TCP connections from listen to target.
type Proxy struct {
	ctx            context.Context
	listen, target string
	link           *link
	mu             sync.Mutex
	pairs          map[*pair]struct{}
	lis            net.Listener
	opened         atomic.Int64
	up, down       atomic.Int64
	probing        atomic.Bool
}

// New makes a proxy that passes everything; Start opens it.
func New(listen, target string) *Proxy {
	return &Proxy{listen: listen, target: target, link: newLink(), pairs: map[*pair]struct{}{}}
}

// Start listens until ctx ends.
func (p *Proxy) Start(ctx context.Context) error {
	p.ctx = ctx
	if err := p.open(); err != nil {
		return err
	}
	context.AfterFunc(ctx, p.closeListener)
	return nil
}

// open listens, unless it does already.
func (p *Proxy) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lis != nil {
		return nil
	}
	lis, err := net.Listen("tcp", p.listen)
	if err != nil {
		return err
	}
	p.lis = lis
	go p.acceptLoop(lis)
	return nil
}

func (p *Proxy) closeListener() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lis != nil {
		_ = p.lis.Close()
		p.lis = nil
	}
}

func (p *Proxy) acceptLoop(lis net.Listener) {
	for {
		c, err := lis.Accept()
		if err != nil {
			return
		}
		go p.serve(c.(*net.TCPConn))
	}
}

// serve waits until the link lets a new connect through, dials and forwards.
func (p *Proxy) serve(client *net.TCPConn) {
	for {
		m, _, changed := p.link.snapshot()
		if m == modeReset {
			reset(client)
			return
		}
		if m.reachable() {
			break
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			reset(client)
			return
		}
	}
	server, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: -1}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			p.mirrorRefusal()
			refuse(client)
			return
		}
		log.Printf("pgproxy: dial: %v", err)
		reset(client)
		return
	}
	p.opened.Add(1)
	pr := &pair{proxy: p, client: client, server: server.(*net.TCPConn), epoch: p.epoch(), dead: make(chan struct{})}
	p.mu.Lock()
	p.pairs[pr] = struct{}{}
	p.mu.Unlock()
	pr.run(p.ctx)
	p.mu.Lock()
	delete(p.pairs, pr)
	p.mu.Unlock()
}

func (p *Proxy) epoch() int64 {
	_, e, _ := p.link.snapshot()
	return e
}

// mirrorRefusal closes our own port while the target refuses, because a client must see the refusal
// itself: a connect that is accepted and then cut is another fault. A link that is cut hides it.
func (p *Proxy) mirrorRefusal() {
	if m, _, _ := p.link.snapshot(); !m.reachable() || !p.probing.CompareAndSwap(false, true) {
		return
	}
	p.closeListener()
	go func() {
		defer p.probing.Store(false)
		for p.ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			m, _, _ := p.link.snapshot()
			if m == modeRefuse { // who leaves that mode opens again
				return
			}
			if m.reachable() && p.targetRefuses() {
				continue
			}
			if err := p.open(); err != nil {
				log.Printf("pgproxy: listen again: %v", err)
				continue
			}
			return
		}
	}()
}

// setMode changes the link; a trap that waits is forgotten.
func (p *Proxy) setMode(m mode) error {
	if m == modeRefuse {
		p.closeListener()
	} else if err := p.open(); err != nil {
		return err
	}
	p.link.update(func() {
		p.link.mode = m
		p.link.trap = nil
		if m == modeOldDead {
			p.link.epoch++
		}
	})
	if m == modeReset || m == modeRefuse {
		p.resetAll()
	}
	return nil
}

func (p *Proxy) resetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pr := range p.pairs {
		pr.kill()
	}
}

func (p *Proxy) setLatency(d time.Duration) { p.link.update(func() { p.link.latency = d }) }
func (p *Proxy) setLoss(share float64)      { p.link.update(func() { p.link.loss = share }) }

func (p *Proxy) stats() string {
	p.mu.Lock()
	n, listening := len(p.pairs), p.lis != nil
	p.mu.Unlock()
	m, _, _ := p.link.snapshot()
	return fmt.Sprintf("mode=%s listening=%t conns=%d opened=%d up=%d down=%d",
		m, listening, n, p.opened.Load(), p.up.Load(), p.down.Load())
}

// reset closes with RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
