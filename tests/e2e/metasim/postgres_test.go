// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgres is a private server on loopback.
type postgres struct {
	dir  string
	port int
}

func pgBin() (string, error) {
	if dir := os.Getenv("PG_BIN"); dir != "" {
		return dir, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("no initdb below /usr/lib/postgresql: install Postgres or set PG_BIN")
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// pgRun runs a program of Postgres, as user postgres if we are root: it refuses root.
func pgRun(program string, args ...string) error {
	dir, err := pgBin()
	if err != nil {
		return err
	}
	argv := append([]string{filepath.Join(dir, program)}, args...)
	if os.Geteuid() == 0 {
		argv = append([]string{"runuser", "-u", "postgres", "--"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

func startPostgres() (*postgres, error) {
	dir, err := os.MkdirTemp("", "metasim-pg")
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if err := giveTo(dir, "postgres"); err != nil {
			return nil, err
		}
	}
	pg := &postgres{dir: dir, port: takePort()}
	started.Lock()
	started.servers = append(started.servers, pg)
	started.Unlock()
	data := filepath.Join(dir, "data")
	if err := pgRun("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N"); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("port=%d\nlisten_addresses='127.0.0.1'\nunix_socket_directories='%s'\nfsync=off\n"+
		"max_connections=800\nshared_buffers=64MB\ndynamic_shared_memory_type=mmap\n", pg.port, dir)
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(conf); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return pg, pg.up()
}

func giveTo(dir, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return os.Chown(dir, uid, gid)
}

func (pg *postgres) up() error {
	return pgRun("pg_ctl", "-D", pg.dir+"/data", "-l", pg.dir+"/log", "-w", "start")
}

func (pg *postgres) down() error {
	return pgRun("pg_ctl", "-D", pg.dir+"/data", "-m", "fast", "-w", "stop")
}

func (pg *postgres) remove() {
	_ = pg.down()
	_ = os.RemoveAll(pg.dir)
	releasePort(pg.port)
}

func (pg *postgres) dsn(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", pg.port, database)
}

// ownPostgres is for tests that stop the server.
func ownPostgres(t *testing.T) *postgres {
	t.Helper()
	pg, err := startPostgres()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pg.remove)
	return pg
}

var databases atomic.Int64

// database creates an empty database named after the test.
func (pg *postgres) database(t *testing.T, name string) string {
	t.Helper()
	name = strings.ToLower(strings.NewReplacer("/", "_", "-", "_", "#", "_").Replace(name))
	name = fmt.Sprintf("%.50s_%d", name, databases.Add(1)) // -count runs a test more than once
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, pg.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	if _, err := c.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	return name
}
