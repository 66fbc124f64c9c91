// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"time"
)

// maintain reaps idle sessions once an idle time-out. A session that is kept counts as used now,
// so that in practice only the excess of a burst is ever reaped: so does sqlx.
func (p *Pool) maintain() {
	period := min(p.opt.Idle, defaultLifetime)
	for {
		next := time.Now().Add(period)
		for range p.idleCount() {
			p.reapOne(time.Until(next))
		}
		time.Sleep(time.Until(next))
	}
}

func (p *Pool) reapOne(patience time.Duration) {
	if !p.sem.tryAcquire() {
		return
	}
	c := p.popIdle()
	if c == nil {
		p.sem.release()
		return
	}
	if time.Since(c.idleSince) <= p.opt.Idle && time.Since(c.created) <= defaultLifetime {
		p.release(c)
		return
	}
	c.closeNice()
	p.addSize(-1)
	p.sem.release()
	p.tryFillMin(patience)
}

func (p *Pool) idleCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// fillMin opens sessions up to the minimum; it never waits for a permit.
func (p *Pool) fillMin(ctx context.Context) error {
	for p.belowMin() {
		if !p.sem.tryAcquire() {
			return nil
		}
		p.addSize(1)
		c, err := p.connect(ctx)
		if err != nil {
			p.addSize(-1)
			p.sem.release()
			return err
		}
		p.release(c)
	}
	return nil
}

// tryFillMin is fillMin for background use: a failure is found again by the next acquire.
func (p *Pool) tryFillMin(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = p.fillMin(ctx)
}
