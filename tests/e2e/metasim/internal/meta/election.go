// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"log"
	"strings"
	"time"

	"metasim/internal/process"
)

// election is the SQL election client, faults included: an error ends a round with the local
// leadership forgotten, and the caller starts the next round at once while the leader services go on.
type election struct {
	id     string
	ttl    time.Duration
	tie    tie
	driver driver
	watch  *watch
	jour   *journal
}

// run repeats rounds until one ends without an error, then cancels the process.
func (e *election) run(stop <-chan struct{}, lost func(), done chan<- struct{}) {
	for {
		err := e.runOnce(stop)
		if err == nil {
			break
		}
		log.Printf("ERROR risingwave_meta_node::server: an election error occurred error=%v", err)
		e.jour.Line("err", kv("msg", err.Error()))
	}
	lost()
	close(done)
}

// runOnce returns nil when leadership was lost, the election timed out or stop came.
func (e *election) runOnce(stop <-chan struct{}) error {
	ctx, abort := context.WithCancel(context.Background())
	defer abort()
	go e.keepMember(ctx, stop)
	e.watch.send(false)

	timeout := newTicker(e.ttl / 2)
	timeout.reset()
	tick := newTicker(time.Second)
	round := round{election: e}
	for {
		switch pick(tick, timeout, stop, e.tie) {
		case branchCampaign:
			tick.advance()
			lost, err := round.campaign()
			if err != nil {
				return err
			}
			if lost {
				e.watch.send(false)
				return nil
			}
			timeout.reset()
			round.trim()
		case branchTimeout:
			log.Printf("ERROR risingwave_meta::rpc::election::sql: member %s election timeout", e.id)
			e.jour.Line("lost", kv("why", "election timeout"))
			e.watch.send(false)
			return nil
		case branchStop:
			round.stop()
			return nil
		}
	}
}

// round is what one run_once knows. It starts without leadership, whatever the process does.
type round struct {
	*election
	isLeader bool
	prev     string
	row      string
}

// campaign runs inside the select's arm: nothing else is looked at until it ends.
func (r *round) campaign() (lost bool, err error) {
	row, err := r.driver.tryCampaign(context.Background(), r.id, r.ttl)
	if err != nil {
		return false, err
	}
	if row.service != electionService {
		log.Printf("panic: assertion failed: %q == %q", row.service, electionService)
		process.Abort(r.jour)
	}
	if row.id != r.row {
		r.jour.Line("row", kv("leader", row.id))
		r.row = row.id
	}
	switch {
	case equalFoldASCII(row.id, r.id):
		r.won(row)
	case r.isLeader:
		log.Printf("WARN risingwave_meta::rpc::election::sql: leader has been changed to %s", row.id)
		r.jour.Line("lost", kv("why", "leader has been changed to "+row.id))
		return true, nil
	case r.prev != row.id:
		log.Printf("INFO risingwave_meta::rpc::election::sql: leader is %s", row.id)
		r.prev = row.id
	}
	return false, nil
}

// won pulses the watch: true once, false at every later win.
func (r *round) won(row electionRow) {
	pulse := !r.isLeader
	r.isLeader = true
	if pulse {
		r.jour.Line("elected", kv("hb_us", row.heartbeatUS))
	}
	r.jour.Line("renew", kv("hb_us", row.heartbeatUS), kv("pulse", pulse))
	r.watch.send(pulse)
}

func (r *round) trim() {
	if !r.isLeader {
		return
	}
	err := r.driver.trimCandidates(context.Background(), 2*r.ttl)
	if err != nil {
		log.Printf("WARN risingwave_meta::rpc::election::sql: trim candidates failed error=%v", err)
	}
	r.jour.Line("trim", kv("ok", err == nil))
}

func (r *round) stop() {
	log.Printf("INFO risingwave_meta::rpc::election::sql: stop signal received when observing")
	if !r.isLeader {
		return
	}
	log.Printf("INFO risingwave_meta::rpc::election::sql: leader %s resigning", r.id)
	err := r.driver.resign(context.Background(), r.id)
	if err != nil {
		log.Printf("WARN risingwave_meta::rpc::election::sql: resign failed error=%v", err)
	}
	r.jour.Line("resign", kv("ok", err == nil))
}

// keepMember refreshes the member row once a second until its round ends. A session whose ping is
// under way is closed then; a statement under way ends by itself.
func (e *election) keepMember(ctx context.Context, stop <-chan struct{}) {
	tick := newTicker(time.Second)
	for {
		timer := time.NewTimer(time.Until(tick.due))
		select {
		case <-ctx.Done():
		case <-stop:
		case <-timer.C:
			tick.advance()
			if err := e.driver.updateHeartbeat(ctx, e.id); err != nil && ctx.Err() == nil {
				log.Printf("DEBUG risingwave_meta::rpc::election::sql: keep alive for member %s failed error=%v",
					e.id, err)
			}
			continue
		}
		timer.Stop()
		return
	}
}

// equalFoldASCII compares as Rust's eq_ignore_ascii_case does; SQL compares case-sensitively.
func equalFoldASCII(a, b string) bool {
	return len(a) == len(b) && strings.Map(lowerASCII, a) == strings.Map(lowerASCII, b)
}

func lowerASCII(r rune) rune {
	if r >= 'A' && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}
