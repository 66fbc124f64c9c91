// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// freeRun repeats a trial whose outcome is random in the original (p, found there), independent of the other
// trials', and fails if the count is outside the central 99 % of the binomial distribution. A sample that is outside gets one
// fresh one, judged alone: otherwise one run in a hundred would fail by chance.
func freeRun(t *testing.T, p float64, clusters int, worker func(t *testing.T, record func(bool))) {
	t.Helper()
	t.Parallel()
	for _, attempt := range []string{"sample", "fresh"} {
		var hits, trials atomic.Int64
		ok := t.Run(attempt, func(t *testing.T) {
			for range clusters {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					worker(t, func(hit bool) {
						trials.Add(1)
						if hit {
							hits.Add(1)
						}
					})
				})
			}
		})
		if !ok {
			return
		}
		k, n := int(hits.Load()), int(trials.Load())
		if inside99(k, n, p) {
			t.Logf("%d of %d, expected share %.2f", k, n, p)
			return
		}
		if attempt == "fresh" {
			t.Errorf("%d of %d again: outside the 99 %% interval of share %.2f", k, n, p)
		}
	}
}

func inside99(k, n int, p float64) bool {
	return binomial(0, k, n, p) > 0.005 && binomial(k, n, n, p) > 0.005
}

// binomial is P(from <= X <= to) for n draws of p.
func binomial(from, to, n int, p float64) float64 {
	sum := 0.0
	for k := from; k <= to; k++ {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		sum += math.Exp(a - b - c + float64(k)*math.Log(p) + float64(n-k)*math.Log(1-p))
	}
	return sum
}

func TestInside99(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k, n int
		p    float64
		want bool
	}{{0, 8, 2.0 / 3, false}, {1, 8, 2.0 / 3, false}, {2, 8, 2.0 / 3, true}, {8, 8, 2.0 / 3, true}, {8, 24, 1.0 / 3, true}, {16, 24, 1.0 / 3, false}} {
		if got := inside99(c.k, c.n, c.p); got != c.want {
			t.Errorf("%d of %d at %.2f: %t", c.k, c.n, c.p, got)
		}
	}
}

// randomPhase moves on by up to a second, so that a trial starts anywhere in it.
func randomPhase() { time.Sleep(rand.N(time.Second)) }

// randomPhases are the campaigns' phases of three nodes that started whenever.
func randomPhases() []int { return []int{rand.IntN(1000), rand.IntN(1000), rand.IntN(1000)} }
