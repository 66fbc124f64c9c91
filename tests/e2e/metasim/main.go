// SPDX-License-Identifier: Apache-2.0

// Command metasim is test equipment: a stand-in for a RisingWave meta node, a TCP proxy that breaks
// links, and a checker that finds two leaders.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"metasim/internal/apiproxy"
	"metasim/internal/compute"
	"metasim/internal/meta"
	"metasim/internal/proxy"
	"metasim/internal/schema"
	"metasim/internal/witness"
)

const usage = `usage: metasim meta-node | compute-node | schema | members | call | pgproxy | apiproxy | witness install|check|sql  [flags]
  meta-node   campaign, follow and lead as a RisingWave meta node does
  compute-node  register with the leading meta, heartbeat, obey its control stream
  schema      print the catalog's schema of a release, or bring a database up to it
  members     ask a meta who is a member and who leads
  call        one RPC to a leading meta or a compute node: workers, jobs, recoveries, actors
  pgproxy     TCP proxy in front of Postgres: stall, reset, old-dead, drop-new, cut, latency, loss
  apiproxy    TLS and HTTP/2 before a plain API server
  witness     install the log of renewals in Postgres; check witness files for two leaders
Each sub-command explains its flags with --help. With METASIM_NAMESERVER=host:port that server is asked for
names, whatever /etc/resolv.conf says.`

func useNameserver(address string) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
}

func main() {
	if address := os.Getenv("METASIM_NAMESERVER"); address != "" {
		useNameserver(address)
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "meta-node":
		os.Exit(meta.Main(args))
	case "compute-node":
		os.Exit(compute.Main(args))
	case "schema":
		os.Exit(schema.Main(args))
	case "members":
		os.Exit(meta.MembersMain(args))
	case "call":
		os.Exit(meta.CallMain(args))
	case "pgproxy":
		os.Exit(proxy.Main(args))
	case "apiproxy":
		os.Exit(apiproxy.Main(args))
	case "witness":
		os.Exit(witness.Main(args))
	case "help", "-h", "--help":
		fmt.Println(usage)
	default:
		fmt.Fprintf(os.Stderr, "metasim: unknown command %q\n%s\n", os.Args[1], usage)
		os.Exit(2)
	}
}
