// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// retransmit is the first TCP retransmission time-out; a lost segment costs at least that.
const retransmit = 200 * time.Millisecond

// pair is one forwarded connection.
type pair struct {
	proxy          *Proxy
	client, server *net.TCPConn
	epoch          int64
	once           sync.Once
	dead           chan struct{}
}

// chunk is what was read, and when it may be written. A nil data is the end of the stream.
type chunk struct {
	data []byte
	due  time.Time
}

func (pr *pair) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, pr.kill)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { pr.pump(pr.client, pr.server, true) })
	wg.Go(func() { pr.pump(pr.server, pr.client, false) })
	wg.Wait()
	pr.kill()
}

// kill resets both sides.
func (pr *pair) kill() {
	pr.once.Do(func() {
		close(pr.dead)
		reset(pr.client)
		reset(pr.server)
	})
}

func (pr *pair) pump(from, to *net.TCPConn, toServer bool) {
	queue := make(chan chunk, 64)
	go pr.read(from, queue, toServer)
	for c := range queue {
		if !pr.waitUntil(c.due) || !pr.gate() {
			return
		}
		if c.data == nil {
			_ = to.CloseWrite()
			return
		}
		if !pr.write(to, c.data, toServer) {
			return
		}
	}
}

// read turns bytes into chunks with a due time, in order, so that latency does not cost throughput.
func (pr *pair) read(from *net.TCPConn, queue chan<- chunk, toServer bool) {
	defer close(queue)
	var last time.Time
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		due := pr.due(last)
		last = due
		c := chunk{data: buf[:n], due: due}
		if n > 0 && !pr.send(queue, c) {
			return
		}
		if err == nil {
			continue
		}
		if !toServer && pr.proxy.targetRefuses() {
			// The port must be shut before the client learns that its session ended.
			pr.proxy.mirrorRefusal()
		}
		pr.send(queue, chunk{due: due})
		return
	}
}

func (pr *pair) send(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-pr.dead:
		return false
	}
}

func (pr *pair) due(notBefore time.Time) time.Time {
	latency, loss := pr.proxy.link.delay()
	due := time.Now().Add(latency)
	for rto := retransmit; loss > 0 && rand.Float64() < loss; rto *= 2 {
		due = due.Add(rto)
	}
	if due.Before(notBefore) {
		return notBefore
	}
	return due
}

func (pr *pair) waitUntil(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-pr.dead:
		return false
	}
}

// gate holds while the link holds; a connection that old-dead has hit never passes again.
func (pr *pair) gate() bool {
	for {
		m, epoch, changed := pr.proxy.link.snapshot()
		if m == modeReset || m == modeRefuse {
			pr.kill()
			return false
		}
		if m != modeStall && epoch == pr.epoch {
			return true
		}
		select {
		case <-changed:
		case <-pr.dead:
			return false
		}
	}
}

func (pr *pair) write(to *net.TCPConn, data []byte, toServer bool) bool {
	counter := &pr.proxy.down
	if toServer {
		counter = &pr.proxy.up
	}
	for len(data) > 0 {
		n := pr.proxy.link.spring(data, toServer)
		if n > 0 {
			if _, err := to.Write(data[:n]); err != nil {
				pr.kill()
				return false
			}
			counter.Add(int64(n))
		}
		data = data[n:]
		if len(data) > 0 && !pr.gate() {
			return false
		}
	}
	return true
}
