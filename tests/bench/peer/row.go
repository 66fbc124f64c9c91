// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

const readRow = `SELECT id, extract(epoch FROM now() - last_heartbeat)::float8 FROM election_leader`

type row struct {
	id   string        // "": there is none
	age  time.Duration // of the heartbeat, by the database's clock
	sent time.Time
}

// watchRow reads the row at each tick, and at once when the database says that it changed.
func watchRow(ctx context.Context, rows chan<- row) {
	hints := make(chan struct{}, 1)
	if *channel != "" {
		go listen(ctx, hints)
	}
	ticks := time.NewTicker(*poll)
	var conn *pgx.Conn
	for {
		r, err := read(ctx, &conn)
		if err != nil {
			slog.Warn("the row could not be read", "error", err)
		} else {
			rows <- r
		}
		select {
		case <-ticks.C:
		case <-hints:
		case <-ctx.Done():
			return
		}
	}
}

func read(ctx context.Context, conn **pgx.Conn) (row, error) {
	c, err := connected(ctx, conn)
	if err != nil {
		return row{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	r := row{sent: time.Now()}
	var age float64
	err = c.QueryRow(ctx, readRow).Scan(&r.id, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, nil
	}
	r.age = time.Duration(age * float64(time.Second))
	return r, err
}

// connected gives *conn, made anew where it is closed: a read that timed out closes it.
func connected(ctx context.Context, conn **pgx.Conn) (*pgx.Conn, error) {
	if *conn != nil && !(*conn).IsClosed() {
		return *conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	made, err := pgx.Connect(ctx, "") // the libpq environment
	if err == nil {
		*conn = made
	}
	return made, err
}

func listen(ctx context.Context, hints chan<- struct{}) {
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if err := listenOnce(ctx, &conn, hints); err != nil {
			slog.Warn("no notifications", "error", err)
			time.Sleep(time.Second)
		}
	}
}

func listenOnce(ctx context.Context, conn **pgx.Conn, hints chan<- struct{}) error {
	c, err := connected(ctx, conn)
	if err != nil {
		return err
	}
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{*channel}.Sanitize()); err != nil {
		return err
	}
	for {
		if _, err := c.WaitForNotification(ctx); err != nil {
			return err
		}
		select {
		case hints <- struct{}{}:
		default: // one is waiting
		}
	}
}
