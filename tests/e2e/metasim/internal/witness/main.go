// SPDX-License-Identifier: Apache-2.0

// Package witness finds two leaders: it compares what the processes noted with the database's own
// log of renewals.
package witness

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

const usage = `usage: metasim witness install --dsn DSN
       metasim witness check --ttl D --dsn DSN [--since BOOT_NS] FILE...
       metasim witness sql
  install  create the test schema "witness": a trigger that logs each renewal of the election row
  check    print JSON; exit 0 without overlap, 1 with, 2 if it can't tell
  sql      print what install runs`

// Main runs `metasim witness`.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		return 2
	}
	switch args[0] {
	case "sql":
		fmt.Print(installSQL)
		return 0
	case "install":
		return finish(runInstall(args[1:]))
	case "check":
		return finish(runCheck(args[1:]))
	case "-h", "--help":
		fmt.Println(usage)
		return 0
	}
	fmt.Fprintf(os.Stderr, "metasim witness: unknown command %q\n%s\n", args[0], usage)
	return 2
}

func finish(code int, err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim witness:", err)
		return 2
	}
	return code
}

func runInstall(args []string) (int, error) {
	fs := flag.NewFlagSet("metasim witness install", flag.ContinueOnError)
	dsn := fs.String("dsn", "", "Postgres, as the role that owns (or will own) the election's tables")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	return 0, withConn(*dsn, func(ctx context.Context, c *pgx.Conn) error { return Install(ctx, c) })
}

func runCheck(args []string) (int, error) {
	fs := flag.NewFlagSet("metasim witness check", flag.ContinueOnError)
	dsn := fs.String("dsn", "", "Postgres with the log of renewals")
	ttl := fs.Duration("ttl", 0, "the election's lease")
	since := fs.Int64("since", 0, "ignore what happened before this CLOCK_BOOTTIME, ns")
	if err := fs.Parse(args); err != nil {
		return 2, err
	}
	if *ttl <= 0 || fs.NArg() == 0 {
		return 2, errors.New("check: --ttl and at least one witness file are needed")
	}
	var rep Report
	err := withConn(*dsn, func(ctx context.Context, c *pgx.Conn) (err error) {
		rep, err = Check(ctx, c, *ttl, *since, fs.Args())
		return err
	})
	if err != nil {
		return 2, err
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	if err := enc.Encode(rep); err != nil {
		return 2, err
	}
	if rep.Overlaps > 0 {
		return 1, nil
	}
	return 0, nil
}

func withConn(dsn string, fn func(context.Context, *pgx.Conn) error) error {
	if dsn == "" {
		return errors.New("--dsn is missing")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	return fn(ctx, c)
}
