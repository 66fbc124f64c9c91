// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"metasim/internal/clock"
)

const (
	minInt64 = math.MinInt64
	maxInt64 = math.MaxInt64
	// A clock that moved further than this during a run makes the comparison worthless.
	maxDriftUS = 50_000
	offsetTrys = 31
)

// offset maps CLOCK_BOOTTIME to the database's clock: db_us = boot_us + us, give or take half the
// shortest round trip.
type offset struct{ us, uncertaintyUS int64 }

func measureOffset(ctx context.Context, c *pgx.Conn) (offset, error) {
	best := offset{uncertaintyUS: maxInt64}
	for range offsetTrys {
		var db int64
		before := clock.BootNS()
		err := c.QueryRow(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`).Scan(&db)
		after := clock.BootNS()
		if err != nil {
			return offset{}, fmt.Errorf("measure the database's clock: %w", err)
		}
		half := (after - before) / 2000
		if half < best.uncertaintyUS {
			best = offset{us: db - before/1000 - half, uncertaintyUS: half + 1}
		}
	}
	return best, nil
}

// plausible checks the offset of now against what the ticks of the run say about the offset then.
func (o offset) plausible(incs []*Incarnation) error {
	for _, i := range incs {
		if i.minOffset == minInt64 { // wrote nothing
			continue
		}
		if o.us < i.minOffset-maxDriftUS || o.us > i.maxOffset+maxDriftUS {
			return fmt.Errorf("the database's clock moved against CLOCK_BOOTTIME: offset is %d us now, "+
				"was between %d and %d us during incarnation %s", o.us, i.minOffset, i.maxOffset, i.Inc)
		}
	}
	return nil
}

func (o offset) toDB(bootNS int64) int64 { return bootNS/1000 + o.us }
