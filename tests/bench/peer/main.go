// SPDX-License-Identifier: Apache-2.0

// peer is what metafence is measured against: the sidecar that one would write in Go, with client-go and
// pgx, for the same job. It reads the election row, keeps its pod's role label true, serves /readyz and
// kills the meta when the lease is another's or has run out. It is written as well as its libraries let
// one, and does less: no guard in Postgres, no sessions ended, no proof of death, no restart, and nothing
// that kills when it is itself dead or frozen.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
)

var (
	id        = flag.String("id", "", "the meta's id in the election")
	process   = flag.String("process", "", "the meta is the process with this in its command line")
	server    = flag.String("server", "", "Kubernetes API; none: as a pod")
	tokenFile = flag.String("token-file", "", "with -server")
	namespace = flag.String("namespace", "", "of the pod")
	pod       = flag.String("pod", "", "own pod")
	address   = flag.String("listen", "127.0.0.1:8080", "of /readyz")
	channel   = flag.String("channel", "", "LISTEN on this; none: polling only")
	workers   = flag.String("workers", "", "selector of the workers' pods to watch; none: don't")
	trim      = flag.Bool("trim", false, "keep only what is needed of the workers' pods")
	ttl       = flag.Duration("ttl", 30*time.Second, "lease of the election")
	margin    = flag.Duration("margin", 2500*time.Millisecond, "the meta is dead so long before the lease ends")
	poll      = flag.Duration("poll", 250*time.Millisecond, "between two reads of the row")
	timeout   = flag.Duration("timeout", 2*time.Second, "of a connection and of a read")
)

type sidecar struct {
	meta    *os.Process // nil: not found yet
	leads   bool
	expiry  *time.Timer
	label   labeler
	isReady atomic.Bool
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	config, err := kubeConfig()
	if err != nil {
		slog.Error("no configuration for the API", "error", err)
		os.Exit(1)
	}
	client := kubernetes.NewForConfigOrDie(config)
	s := &sidecar{expiry: time.NewTimer(time.Hour), label: labeler{changed: make(chan struct{}, 1)}}
	s.expiry.Stop()
	go s.serve()
	go s.label.run(ctx, client)
	watchOwnPod(ctx, client, &s.label)
	if *workers != "" {
		go watchWorkers(ctx, client)
	}
	rows := make(chan row)
	go watchRow(ctx, rows)
	for {
		select {
		case r := <-rows:
			s.saw(r)
		case <-s.expiry.C:
			s.lose("the lease has run out")
		case <-ctx.Done():
			return
		}
	}
}

func (s *sidecar) saw(r row) {
	switch {
	case r.id == *id:
		s.expiry.Reset(time.Until(r.sent.Add(*ttl - r.age - *margin)))
		if !s.leads {
			s.meta = findProcess(*process)
			s.leads = true
		}
		s.label.set("leader")
	case r.id == "":
	case s.leads:
		s.lose("the lease is another's")
	default:
		s.label.set("follower")
	}
	if s.meta == nil {
		s.meta = findProcess(*process)
	}
	s.isReady.Store(s.meta != nil)
}

func (s *sidecar) lose(why string) {
	s.leads = false
	s.expiry.Stop()
	s.label.set("unknown")
	if s.meta != nil {
		err := s.meta.Kill()
		slog.Warn("killed the meta", "why", why, "pid", s.meta.Pid, "error", err)
		s.meta = nil
	}
}

func (s *sidecar) serve() {
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.isReady.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	slog.Error("no server", "error", http.ListenAndServe(*address, nil))
}
