// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const createLedger = `CREATE TABLE IF NOT EXISTS seaql_migrations (version varchar PRIMARY KEY, applied_at bigint NOT NULL)`

// Parse checks the name of a release.
func Parse(name string) (Release, error) {
	if slices.Contains(order, Release(name)) {
		return Release(name), nil
	}
	return "", fmt.Errorf("release %q: use v2.0, v2.6, v2.8, v3.0, head or next", name)
}

// AtLeast says whether r contains the migrations of other.
func (r Release) AtLeast(other Release) bool {
	return slices.Index(order, r) >= slices.Index(order, other)
}

// Execute runs one statement and returns the first column of its rows as text.
type Execute func(sql string) (firstColumn []string, err error)

// Apply brings the database up to a release: all pending migrations in one transaction, as the original's
// migrator does. A newer database stays as it is.
func Apply(r Release, execute Execute) (err error) {
	if _, err := execute("BEGIN"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_, rollback := execute("ROLLBACK")
			err = errors.Join(err, rollback)
		}
	}()
	if _, err := execute(createLedger); err != nil {
		return err
	}
	done, err := execute("SELECT version FROM seaql_migrations")
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if !r.AtLeast(m.since) || slices.Contains(done, m.name) {
			continue
		}
		for _, sql := range m.statements() {
			if _, err := execute(sql); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
	}
	_, err = execute("COMMIT")
	return err
}

// statements are those of the migration and its line in the ledger.
func (m migration) statements() []string {
	var all []string
	for s := range strings.SplitSeq(m.sql, ";\n") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), ";"); s != "" {
			all = append(all, s)
		}
	}
	return append(all, fmt.Sprintf(
		"INSERT INTO seaql_migrations (version, applied_at) VALUES ('%s', extract(epoch FROM now())::bigint)", m.name))
}

// Script is the text of all migrations up to a release, for an empty database.
func Script(r Release) string {
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN;\n%s;\n", createLedger)
	for _, m := range migrations {
		if r.AtLeast(m.since) {
			fmt.Fprintf(&b, "\n-- %s\n%s;\n", m.name, strings.Join(m.statements(), ";\n"))
		}
	}
	return b.String() + "COMMIT;\n"
}

const usage = `usage: metasim schema --version RELEASE [--dsn DSN]
  Prints the catalog's schema of a release of RisingWave (v2.0, v2.6, v2.8, v3.0, head, or next: what a later one may
  do to columns). With --dsn it brings that database up to the release instead, from whichever it has; the
  environment variable METASIM_DSN does the same for text with a password.`

// Main runs "metasim schema".
func Main(args []string) int {
	fs := flag.NewFlagSet("metasim schema", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintln(os.Stderr, usage) }
	version := fs.String("version", "", "")
	dsn := fs.String("dsn", os.Getenv("METASIM_DSN"), "")
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	r, err := Parse(*version)
	if err != nil || fs.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "metasim schema: --version:", err, fs.Args())
		return 2
	}
	if *dsn == "" {
		fmt.Print(Script(r))
		return 0
	}
	if err := applyTo(*dsn, r); err != nil {
		fmt.Fprintln(os.Stderr, "metasim schema:", err)
		return 1
	}
	return 0
}

func applyTo(dsn string, r Release) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	return Apply(r, func(sql string) ([]string, error) {
		results, err := c.PgConn().Exec(ctx, sql).ReadAll()
		if err != nil {
			return nil, err
		}
		var column []string
		for _, row := range results[0].Rows {
			column = append(column, string(row[0]))
		}
		return column, nil
	})
}
