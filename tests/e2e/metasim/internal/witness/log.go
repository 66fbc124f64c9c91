// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// renewal is one line of the database's log: heartbeat by the database's clock, in us.
type renewal struct {
	id, tag     string
	heartbeatUS int64
	by          *Incarnation
}

// readRenewals returns heartbeats in the order in which they were committed. Deletes are not renewals.
func readRenewals(ctx context.Context, c *pgx.Conn, sinceUS int64) ([]renewal, error) {
	rows, err := c.Query(ctx, `SELECT coalesce(id, ''), coalesce(tag, ''), (extract(epoch FROM heartbeat) * 1000000)::bigint
		FROM witness.renewal WHERE op <> 'delete' AND heartbeat IS NOT NULL
		AND at >= to_timestamp($1::double precision / 1000000) ORDER BY seq`, sinceUS)
	if err != nil {
		return nil, fmt.Errorf("read the log of renewals (was `metasim witness install` run?): %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r renewal, err error) {
		err = row.Scan(&r.id, &r.tag, &r.heartbeatUS)
		return r, err
	})
}

// readWrites returns the moments at which each incarnation's ticks were written, in us.
func readWrites(ctx context.Context, c *pgx.Conn) (map[string][]int64, error) {
	var exists bool
	if err := c.QueryRow(ctx, `SELECT to_regclass('witness_tick') IS NOT NULL`).Scan(&exists); err != nil || !exists {
		return nil, err
	}
	rows, err := c.Query(ctx, `SELECT inc, (extract(epoch FROM at) * 1000000)::bigint FROM witness_tick ORDER BY at`)
	if err != nil {
		return nil, err
	}
	writes := map[string][]int64{}
	var inc string
	var at int64
	_, err = pgx.ForEachRow(rows, []any{&inc, &at}, func() error {
		writes[inc] = append(writes[inc], at)
		return nil
	})
	return writes, err
}

// attribute finds who wrote each heartbeat: the process that noted it; else the only incarnation with
// that session tag; else the only one with that id that lived then. It returns how many stay unknown.
func attribute(log []renewal, incs []*Incarnation, noted map[int64]*Incarnation, off offset) (unknown int) {
	for k := range log {
		r := &log[k]
		if r.by = noted[r.heartbeatUS]; r.by == nil {
			r.by = only(incs, func(i *Incarnation) bool { return r.tag != "" && i.Tag == r.tag })
		}
		if r.by == nil {
			r.by = only(incs, func(i *Incarnation) bool {
				return i.ID == r.id && off.toDB(i.start) <= r.heartbeatUS && r.heartbeatUS <= off.toDB(i.end)+1_000_000
			})
		}
		if r.by == nil {
			unknown++
			continue
		}
		r.by.renewed = append(r.by.renewed, r.heartbeatUS)
	}
	for _, i := range incs {
		slices.Sort(i.renewed) // a statement that waited for a lock carries an older time
	}
	return unknown
}

func only(incs []*Incarnation, match func(*Incarnation) bool) *Incarnation {
	var found *Incarnation
	for _, i := range incs {
		if !match(i) {
			continue
		}
		if found != nil {
			return nil
		}
		found = i
	}
	return found
}
