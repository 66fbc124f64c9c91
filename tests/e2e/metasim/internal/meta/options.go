// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"metasim/internal/schema"
)

// options of a meta node: the original's arguments (each with its environment variable), the knobs
// of its TOML file, and the switches for nasty cases.
type options struct {
	listen, advertise, prometheus, dashboard       string
	sqlEndpoint, sqlDatabase, sqlUser, sqlPassword string

	lease, acquire, connect, idle time.Duration
	poolMax, poolMin              int

	witness              string
	tick, init, recovery time.Duration
	slowStart, childLife time.Duration
	phaseMS, blockPool   int
	tie                  tie

	release                      schema.Release // empty: no registry of workers
	maxHeartbeat, reconnectLimit time.Duration
	pauseDir                     string
	jobs                         int
	isolation                    bool

	ignoreTerm, wrapperShell, doubleFork, setsid, phantom bool
}

// env is one of the original's arguments that may come from the environment.
type env struct {
	flag, variable, fallback string
	dest                     *string
}

func (o *options) fromEnv() []env {
	return []env{
		{"listen-addr", "RW_LISTEN_ADDR", "127.0.0.1:5690", &o.listen},
		{"advertise-addr", "RW_ADVERTISE_ADDR", "", &o.advertise},
		{"prometheus-host", "RW_PROMETHEUS_HOST", "", &o.prometheus},
		{"dashboard-host", "RW_DASHBOARD_HOST", "", &o.dashboard},
		{"sql-endpoint", "RW_SQL_ENDPOINT", "", &o.sqlEndpoint},
		{"sql-database", "RW_SQL_DATABASE", "", &o.sqlDatabase},
		{"sql-username", "RW_SQL_USERNAME", "", &o.sqlUser},
		{"sql-password", "RW_SQL_PASSWORD", "", &o.sqlPassword},
	}
}

// parseOptions reads flags over environment. Errors name the option, the value and the fix.
func parseOptions(args []string, usage io.Writer) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("metasim meta-node", flag.ContinueOnError)
	fs.SetOutput(usage)
	for _, e := range o.fromEnv() {
		// The value itself is not the flag's default: it would be shown by --help.
		fs.StringVar(e.dest, e.flag, "", "environment "+e.variable)
	}
	o.timing(fs)
	tieName := o.nasty(fs)
	release := o.workers(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	for _, e := range o.fromEnv() {
		if *e.dest == "" {
			*e.dest = os.Getenv(e.variable)
		}
		if *e.dest == "" {
			*e.dest = e.fallback
		}
	}
	var err error
	if o.tie, err = parseTie(*tieName); err != nil {
		return nil, err
	}
	if *release != "" {
		if o.release, err = schema.Parse(*release); err != nil {
			return nil, fmt.Errorf("--workers %q: use v2.6, v2.8, v3.0 or head", *release)
		}
	}
	return o, o.check()
}

// workers are the flags of the registry.
func (o *options) workers(fs *flag.FlagSet) *string {
	fs.DurationVar(&o.maxHeartbeat, "max-heartbeat-interval", time.Minute, "max_heartbeat_interval_secs, whole seconds: a worker expires after this")
	fs.DurationVar(&o.reconnectLimit, "reconnect-limit", time.Minute, "longest wait between two attempts to reopen a control stream")
	fs.StringVar(&o.pauseDir, "pause-dir", "", "a task that reaches point P waits while the file DIR/P exists")
	fs.IntVar(&o.jobs, "jobs", 1, "0 = a cluster without streaming jobs")
	fs.BoolVar(&o.isolation, "database-isolation", true, "a failed database recovers alone (per_database_isolation with its licence)")
	return fs.String("workers", "", "lead with a registry of workers, as release v2.6, v2.8, v3.0 or head; empty = none")
}

func (o *options) timing(fs *flag.FlagSet) {
	fs.DurationVar(&o.lease, "lease", 30*time.Second, "meta_leader_lease_secs, whole seconds > 2")
	fs.DurationVar(&o.acquire, "acquire-timeout", 30*time.Second, "acquire_timeout_sec; 0 = --connect-timeout")
	fs.DurationVar(&o.connect, "connect-timeout", 10*time.Second, "connection_timeout_sec: the same knob, if the other is 0")
	fs.DurationVar(&o.idle, "idle-timeout", 30*time.Second, "idle_timeout_sec")
	fs.IntVar(&o.poolMax, "pool-max", 10, "max_connections")
	fs.IntVar(&o.poolMin, "pool-min", 1, "min_connections")
}

func (o *options) nasty(fs *flag.FlagSet) *string {
	fs.StringVar(&o.witness, "witness", "", "file to append witness lines to")
	fs.DurationVar(&o.tick, "tick", 100*time.Millisecond, "period of the leader's witness ticks; 0 = none")
	fs.DurationVar(&o.init, "init", 0, "length of the leader's init, which ignores lost leadership and TERM")
	fs.DurationVar(&o.recovery, "recovery", 0, "length of the bootstrap recovery: status 1, then 2, then 3")
	fs.DurationVar(&o.slowStart, "slow-start", 0, "wait before the first connect; no port listens meanwhile")
	fs.DurationVar(&o.childLife, "child-life", 5*time.Minute, "the child of --double-fork ends by itself after this")
	fs.IntVar(&o.phaseMS, "phase-ms", -1, "campaign when CLOCK_BOOTTIME modulo 1 s is this; -1 = at once")
	fs.IntVar(&o.blockPool, "block-pool", 0, "leader tasks that each update metasim_data once a second: lock that table and they hold this many sessions")
	fs.BoolVar(&o.ignoreTerm, "ignore-term", false, "ignore SIGTERM and SIGINT")
	fs.BoolVar(&o.wrapperShell, "wrapper-shell", false, "run below a shell that forwards no signal")
	fs.BoolVar(&o.doubleFork, "double-fork", false, "as leader, leave a daemon child that keeps the service port and ticks")
	fs.BoolVar(&o.setsid, "setsid", false, "run in a session of its own")
	fs.BoolVar(&o.phantom, "phantom", false, "miss the edge of the first win: renew, but never start leader services")
	return fs.String("tie", string(tieRandom), "who wins when campaign and election time-out are due together: random, campaign, timeout")
}

func (o *options) check() error {
	if o.advertise == "" {
		return errors.New("--advertise-addr or RW_ADVERTISE_ADDR is missing: give host:port")
	}
	if o.acquire == 0 {
		o.acquire = o.connect
	}
	switch {
	case o.lease%time.Second != 0 || o.lease <= 2*time.Second:
		return fmt.Errorf("--lease %v: give whole seconds, more than 2s", o.lease)
	case o.acquire <= 0 || o.idle <= 0 || o.childLife <= 0:
		return fmt.Errorf("--acquire-timeout %v, --idle-timeout %v, --child-life %v: each must be positive",
			o.acquire, o.idle, o.childLife)
	case o.tick < 0 || o.init < 0 || o.recovery < 0 || o.slowStart < 0:
		return errors.New("--tick, --init, --recovery, --slow-start: must not be negative")
	case o.poolMax < 1 || o.poolMin < 0 || o.poolMin > o.poolMax:
		return fmt.Errorf("--pool-max %d, --pool-min %d: need 1 <= max and 0 <= min <= max", o.poolMax, o.poolMin)
	case o.phaseMS < -1 || o.phaseMS > 999:
		return fmt.Errorf("--phase-ms %d: give 0 to 999, or -1", o.phaseMS)
	case o.release != "" && (o.release.AtLeast(schema.Next) || !o.release.AtLeast(schema.V26)):
		return fmt.Errorf("--workers %s: use v2.6, v2.8, v3.0 or head", o.release)
	case o.maxHeartbeat%time.Second != 0 || o.maxHeartbeat <= 0:
		return fmt.Errorf("--max-heartbeat-interval %v: give whole seconds, at least 1s", o.maxHeartbeat)
	case o.reconnectLimit <= 0 || o.jobs < 0 || o.jobs > 1:
		return fmt.Errorf("--reconnect-limit %v, --jobs %d: must be positive, and 0 or 1", o.reconnectLimit, o.jobs)
	case o.blockPool < 0:
		return fmt.Errorf("--block-pool %d: must not be negative", o.blockPool)
	}
	return o.checkAddresses()
}

func (o *options) checkAddresses() error {
	for _, a := range []struct {
		name, value string
		optional    bool
	}{
		{"--sql-endpoint or RW_SQL_ENDPOINT", o.sqlEndpoint, false},
		{"--listen-addr or RW_LISTEN_ADDR", o.listen, false},
		{"--prometheus-host or RW_PROMETHEUS_HOST", o.prometheus, true},
		{"--dashboard-host or RW_DASHBOARD_HOST", o.dashboard, true},
	} {
		if a.value == "" && a.optional {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			return fmt.Errorf("%s %q: give host:port (%w)", a.name, a.value, err)
		}
	}
	return nil
}
