// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// ticker keeps the schedule of a tokio interval with burst catch-up: a missed tick is due at once,
// and the phase never moves unless reset.
type ticker struct {
	due    time.Time
	period time.Duration
}

// timerGrain is tokio's: the first tick of a new interval is due a moment after its creation, so that
// a stop signal that is already there wins against it.
const timerGrain = time.Millisecond

func newTicker(period time.Duration) *ticker {
	return &ticker{due: time.Now().Add(timerGrain), period: period}
}

func (t *ticker) reset()                   { t.due = time.Now().Add(t.period) }
func (t *ticker) advance()                 { t.due = t.due.Add(t.period) }
func (t *ticker) ready(now time.Time) bool { return !now.Before(t.due) }

// tie says which branch wins when the election tick and the election time-out are due together.
type tie string

const (
	tieRandom   tie = "random"
	tieCampaign tie = "campaign"
	tieTimeout  tie = "timeout"
)

func parseTie(s string) (tie, error) {
	switch t := tie(s); t {
	case tieRandom, tieCampaign, tieTimeout:
		return t, nil
	}
	return "", fmt.Errorf("--tie %q: use random, campaign or timeout", s)
}

type branch int

const (
	branchCampaign branch = iota
	branchTimeout
	branchStop
)

// pick waits for the next branch of the election's select.
func pick(election, timeout *ticker, stop <-chan struct{}, t tie) branch {
	for {
		now := time.Now()
		ready := readyBranches(election.ready(now), timeout.ready(now), stop)
		if len(ready) > 0 {
			return choose(ready, t)
		}
		next := election.due
		if timeout.due.Before(next) {
			next = timeout.due
		}
		timer := time.NewTimer(next.Sub(now))
		select {
		case <-timer.C:
		case <-stop:
		}
		timer.Stop()
	}
}

func readyBranches(election, timeout bool, stop <-chan struct{}) []branch {
	var ready []branch
	if election {
		ready = append(ready, branchCampaign)
	}
	if timeout {
		ready = append(ready, branchTimeout)
	}
	select {
	case <-stop:
		ready = append(ready, branchStop)
	default:
	}
	return ready
}

// choose is random like the real select. Between the two tickers the time-out wins in two of three
// cases: 20 of 30 frozen processes of the measured original left by it.
func choose(ready []branch, t tie) branch {
	if len(ready) == 2 && ready[0] == branchCampaign && ready[1] == branchTimeout {
		switch {
		case t == tieCampaign:
			return branchCampaign
		case t == tieTimeout || rand.IntN(3) > 0:
			return branchTimeout
		default:
			return branchCampaign
		}
	}
	return ready[rand.IntN(len(ready))]
}
