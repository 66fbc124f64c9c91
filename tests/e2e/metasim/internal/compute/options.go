// SPDX-License-Identifier: Apache-2.0

// Package compute is the stand-in for a compute node: it registers with the leading meta, heartbeats, and takes
// orders from whoever opened its control stream last.
package compute

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"metasim/internal/wire"
)

type options struct {
	listen, advertise, metaAddress, witness, pauseDir string
	heartbeat, maxHeartbeat, reset, busy              time.Duration
	isErrorOnRemoved                                  bool
	parallelism                                       int
	metas                                             []string
	isLoadBalance                                     bool
}

func parseOptions(args []string, usage io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("metasim compute-node", flag.ContinueOnError)
	fs.SetOutput(usage)
	env := []struct {
		flag, variable, fallback string
		dest                     *string
	}{
		{"listen-addr", "RW_LISTEN_ADDR", "127.0.0.1:5688", &o.listen},
		{"advertise-addr", "RW_ADVERTISE_ADDR", "", &o.advertise},
		{"meta-address", "RW_META_ADDR", "http://127.0.0.1:5690", &o.metaAddress},
	}
	for _, e := range env {
		fs.StringVar(e.dest, e.flag, "", "environment "+e.variable)
	}
	fs.StringVar(&o.witness, "witness", "", "file to append witness lines to")
	fs.StringVar(&o.pauseDir, "pause-dir", "", "a task that reaches point P waits while the file DIR/P exists")
	fs.IntVar(&o.parallelism, "parallelism", 2, "actors that a job gets on this node")
	fs.DurationVar(&o.heartbeat, "heartbeat-interval", time.Second, "heartbeat_interval_ms")
	fs.DurationVar(&o.maxHeartbeat, "max-heartbeat-interval", time.Minute, "max_heartbeat_interval_secs: how long registering and activating are retried")
	fs.DurationVar(&o.reset, "reset-delay", 0, "how long actors take to end after they were aborted")
	fs.DurationVar(&o.busy, "busy", 0, "how long a chunk keeps an actor from seeing that it was aborted; see also the pause point actor-busy")
	onRemoved := fs.String("read-removed", "empty", "what a read of a table gives that was removed: empty, as in the original, or error")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if *onRemoved != "empty" && *onRemoved != "error" {
		return nil, fmt.Errorf("--read-removed %q: use empty or error", *onRemoved)
	}
	o.isErrorOnRemoved = *onRemoved == "error"
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for _, e := range env {
		if *e.dest == "" {
			*e.dest = os.Getenv(e.variable)
		}
		if *e.dest == "" {
			*e.dest = e.fallback
		}
	}
	return o, o.check()
}

func (o *options) check() error {
	if o.advertise == "" {
		o.advertise = o.listen
	}
	for name, value := range map[string]string{"--listen-addr": o.listen, "--advertise-addr": o.advertise} {
		if _, err := wire.ParseHost(value); err != nil {
			return fmt.Errorf("%s %q: give host:port (%w)", name, value, err)
		}
	}
	if o.heartbeat <= 0 || o.maxHeartbeat <= 0 || o.reset < 0 || o.busy < 0 || o.parallelism < 1 {
		return errors.New("--heartbeat-interval, --max-heartbeat-interval and --parallelism must be positive, --reset-delay and --busy not negative")
	}
	address, found := strings.CutPrefix(o.metaAddress, "load-balance+")
	o.isLoadBalance = found
	for part := range strings.SplitSeq(address, ",") {
		host := strings.TrimPrefix(strings.TrimSpace(part), "http://")
		if _, err := wire.ParseHost(host); err != nil {
			return fmt.Errorf("--meta-address or RW_META_ADDR %q: give load-balance+http://host:port or a list of http://host:port", o.metaAddress)
		}
		o.metas = append(o.metas, host)
	}
	if o.isLoadBalance && len(o.metas) != 1 {
		return fmt.Errorf("--meta-address %q: load-balance takes one address, whose name stands for all metas", o.metaAddress)
	}
	return nil
}
