// SPDX-License-Identifier: Apache-2.0

// Package proxy is a TCP proxy that breaks links to Postgres on command.
package proxy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
)

// Main runs `metasim pgproxy` until TERM or INT.
func Main(args []string) int {
	fs := flag.NewFlagSet("metasim pgproxy", flag.ContinueOnError)
	listen := fs.String("listen", "", "host:port to listen on")
	target := fs.String("target", "", "host:port of Postgres")
	control := fs.String("control", "", "unix socket for control lines")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *listen == "" || *target == "" || *control == "" || fs.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "metasim pgproxy: --listen, --target and --control are all needed, and nothing else")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	p := New(*listen, *target)
	if err := p.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "metasim pgproxy:", err)
		return 1
	}
	if err := serveControl(ctx, p, *control); err != nil {
		fmt.Fprintln(os.Stderr, "metasim pgproxy:", err)
		return 1
	}
	log.Printf("pgproxy %s -> %s", *listen, *target)
	<-ctx.Done()
	return 0
}
