// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"time"

	"metasim/internal/pool"
)

const (
	electionService = "__meta_election_"

	createMember = `CREATE TABLE IF NOT EXISTS election_member (service VARCHAR, id VARCHAR, ` +
		`last_heartbeat TIMESTAMPTZ, PRIMARY KEY (service, id));`
	createLeader = `CREATE TABLE IF NOT EXISTS election_leader (service VARCHAR, id VARCHAR, ` +
		`last_heartbeat TIMESTAMPTZ, PRIMARY KEY (service));`
	heartbeatMember = `INSERT INTO election_member (id, service, last_heartbeat)
VALUES ($1, $2, NOW())
ON CONFLICT (id, service) DO UPDATE SET last_heartbeat = EXCLUDED.last_heartbeat;`
	campaign = `INSERT INTO election_leader (service, id, last_heartbeat)
VALUES ($1, $2, NOW())
ON CONFLICT (service) DO UPDATE
SET id = CASE
        WHEN election_leader.last_heartbeat < NOW() - $3::INTERVAL THEN EXCLUDED.id
        ELSE election_leader.id
    END,
    last_heartbeat = CASE
        WHEN election_leader.last_heartbeat < NOW() - $3::INTERVAL THEN EXCLUDED.last_heartbeat
        WHEN election_leader.id = EXCLUDED.id THEN EXCLUDED.last_heartbeat
        ELSE election_leader.last_heartbeat
    END
RETURNING service, id, last_heartbeat;`
	readLeader     = `SELECT service, id, last_heartbeat FROM election_leader WHERE service = $1;`
	readCandidates = `SELECT service, id, last_heartbeat FROM election_member WHERE service = $1;`
	resignLeader   = `DELETE FROM election_leader WHERE service = $1 AND id = $2;`
	resignMember   = `DELETE FROM election_member WHERE service = $1 AND id = $2;`
	trimMembers    = `DELETE FROM election_member WHERE election_member.service = $1 ` +
		`AND election_member.last_heartbeat < NOW() - $2::INTERVAL;`
)

// pgEpochUS is 2000-01-01 in microseconds since 1970: the zero of binary timestamptz.
const pgEpochUS = 946684800 * 1000000

// electionRow is what a campaign returned. heartbeatUS is microseconds since 1970, 0 for NULL; the
// election itself never looks at it, only the journal does.
type electionRow struct {
	service, id string
	heartbeatUS int64
}

// driver runs the statements of the election, all through the pool that the node's data also uses.
type driver struct{ pool *pool.Pool }

func (d driver) initDatabase(ctx context.Context) error {
	for _, sql := range []string{createMember, createLeader} {
		if _, err := d.pool.Exec(ctx, pool.Statement{SQL: sql}); err != nil {
			return err
		}
	}
	return nil
}

func (d driver) updateHeartbeat(ctx context.Context, id string) error {
	_, err := d.pool.Exec(ctx, pool.Statement{SQL: heartbeatMember, Args: []string{id, electionService}})
	return err
}

func (d driver) tryCampaign(ctx context.Context, id string, ttl time.Duration) (electionRow, error) {
	res, err := d.pool.Exec(ctx, pool.Statement{
		SQL: campaign, Args: []string{electionService, id, seconds(ttl)}, Format: []int16{0, 0, 1},
	})
	if err != nil {
		return electionRow{}, err
	}
	if len(res.Rows) == 0 {
		return electionRow{}, errors.New("bad result from postgres")
	}
	return parseRow(res.Rows[0])
}

func parseRow(row [][]byte) (electionRow, error) {
	if len(row) != 3 || row[0] == nil || row[1] == nil {
		return electionRow{}, errors.New("unexpected null in the election row; column service or id")
	}
	r := electionRow{service: string(row[0]), id: string(row[1])}
	if len(row[2]) == 8 {
		r.heartbeatUS = int64(binary.BigEndian.Uint64(row[2])) + pgEpochUS
	}
	return r, nil
}

func (d driver) trimCandidates(ctx context.Context, timeout time.Duration) error {
	_, err := d.pool.Exec(ctx, pool.Statement{
		SQL: trimMembers, Args: []string{electionService, seconds(timeout)},
	})
	return err
}

// resign deletes both rows in one transaction.
func (d driver) resign(ctx context.Context, id string) error {
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer d.pool.Release(c)
	args := []string{electionService, id}
	steps := []pool.Statement{
		{SQL: "BEGIN"}, {SQL: resignLeader, Args: args}, {SQL: resignMember, Args: args}, {SQL: "COMMIT"},
	}
	for _, st := range steps {
		if _, err := c.Exec(st); err != nil {
			_, rollbackErr := c.Exec(pool.Statement{SQL: "ROLLBACK"})
			return errors.Join(err, rollbackErr)
		}
	}
	return nil
}

// members lists (id, is leader). Two statements, no snapshot: as the real RPC.
func (d driver) members(ctx context.Context) (ids []string, leader string, err error) {
	arg := []string{electionService}
	res, err := d.pool.Exec(ctx, pool.Statement{SQL: readLeader, Args: arg})
	if err != nil {
		return nil, "", err
	}
	if len(res.Rows) > 0 {
		leader = string(res.Rows[0][1])
	}
	res, err = d.pool.Exec(ctx, pool.Statement{SQL: readCandidates, Args: arg})
	if err != nil {
		return nil, "", err
	}
	for _, row := range res.Rows {
		ids = append(ids, string(row[1]))
	}
	return ids, leader, nil
}

// seconds is how the real client passes an interval: the bare number of whole seconds.
func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
