// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"

	"metasim/internal/pool"
	"metasim/internal/schema"
	"metasim/internal/wire"
)

// createCheckpoint makes what stands for the object store: the version of the last checkpoint, which anybody overwrites.
const createCheckpoint = `CREATE TABLE IF NOT EXISTS metasim_checkpoint (k int PRIMARY KEY, version bytea NOT NULL)`

// replay makes the version of the checkpoint and the deltas after it.
func (h *hummock) replay() error {
	h.version = wire.HummockVersion{ID: 1, Tables: map[uint32]uint64{}}
	res, err := h.c.query("SELECT version FROM metasim_checkpoint")
	if err != nil {
		return err
	}
	if len(res.Rows) > 0 {
		b, err := decodeBytea(res.Rows[0][0])
		if err == nil {
			h.version, err = wire.DecodeVersion(b)
		}
		if err != nil {
			return fmt.Errorf("version of the checkpoint: %w", err)
		}
	}
	res, err = h.c.query("SELECT id, full_version_delta FROM hummock_version_delta WHERE id > $1 ORDER BY id", text(h.version.ID))
	if err != nil {
		return err
	}
	for _, row := range res.Rows {
		b, err := decodeBytea(row[1])
		var d wire.VersionDelta
		if err == nil {
			d, err = wire.DecodeVersionDelta(b)
		}
		if err != nil {
			return fmt.Errorf("hummock_version_delta %s: %w", row[0], err)
		}
		d.ID = uint64(number(row[0]))
		h.version.Apply(d)
	}
	return nil
}

func decodeBytea(column []byte) ([]byte, error) {
	return hex.DecodeString(strings.TrimPrefix(string(column), `\x`))
}

// commit writes one checkpoint. The id is memory's, and the delta an upsert: a second leader overwrites it.
func (h *hummock) commit(epoch uint64, workers, tables []uint32) error {
	if !h.c.release.AtLeast(schema.Head) {
		for _, id := range workers {
			if h.checkContext(id) != nil {
				return fmt.Errorf("SST %d is invalid", h.current().ID)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The sequence first: read, then an absolute update.
	res, err := h.c.query("SELECT seq FROM hummock_sequence WHERE name = 'sstable_object'")
	if err != nil {
		return err
	}
	if len(res.Rows) == 0 {
		return errors.New("hummock_sequence has no row sstable_object")
	}
	_, err = h.c.query("UPDATE hummock_sequence SET seq = $1 WHERE name = 'sstable_object'", text(number(res.Rows[0][0])+10))
	if err != nil {
		return err
	}
	d := wire.VersionDelta{Committed: map[uint32]uint64{}}
	for _, id := range tables {
		d.Committed[id] = epoch
	}
	return h.write(d, pool.Statement{
		SQL: `INSERT INTO hummock_version_stats (id, stats) VALUES (0, $1)
ON CONFLICT (id) DO UPDATE SET stats = EXCLUDED.stats RETURNING id`,
		Args: []string{`{"1": {"total_key_count": 0}}`},
	})
}

// unregister takes the tables of a dropped job out of the version. Ids that are gone already leave an empty delta.
func (h *hummock) unregister(ids []uint32, by string) error {
	if len(ids) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []uint32
	for _, id := range ids {
		if _, ok := h.version.Tables[id]; ok {
			found = append(found, id)
		}
	}
	return h.removeTables(found, by)
}

// purge takes out all tables that no job has; without any there is no statement.
func (h *hummock) purge(kept []uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []uint32
	for id := range h.version.Tables {
		if !slices.Contains(kept, id) {
			found = append(found, id)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return h.removeTables(found, "purge")
}

// removeTables is called under the lock, as all its SQL: meanwhile nobody subscribes, commits or starts.
func (h *hummock) removeTables(ids []uint32, by string) error {
	slices.Sort(ids)
	h.c.pauseAt("versioning-locked", kv("by", by), kv("tables", ids))
	var more []pool.Statement
	if h.c.release.AtLeast(schema.V30) && len(ids) > 0 {
		more = append(more, pool.Statement{SQL: "DELETE FROM hummock_table_change_log WHERE table_id IN (" + idList(ids) + ")"})
	}
	if err := h.write(wire.VersionDelta{Removed: ids}, more...); err != nil {
		h.c.jour.Line("unregister_failed", kv("by", by), kv("tables", ids), kv("msg", err.Error()))
		return err
	}
	h.c.jour.Line("unregistered", kv("by", by), kv("tables", ids), kv("version", h.version.ID))
	return nil
}

func idList(ids []uint32) string {
	var all []string
	for _, id := range ids {
		all = append(all, text(id))
	}
	return strings.Join(all, ", ")
}

// write makes the next version: first in SQL, the delta before all else of its transaction, then in memory, then at
// whoever reads.
func (h *hummock) write(d wire.VersionDelta, more ...pool.Statement) error {
	d.ID, d.PrevID = h.version.ID+1, h.version.ID
	encoded := d.Encode()
	tx, err := h.c.pool.Begin(context.Background())
	if err != nil {
		return err
	}
	first := pool.Statement{
		SQL: `INSERT INTO hummock_version_delta (id, prev_id, max_committed_epoch, safe_epoch, trivial_move, full_version_delta)
VALUES ($1, $2, 0, 0, false, $3) ON CONFLICT (id) DO UPDATE SET prev_id = EXCLUDED.prev_id,
 max_committed_epoch = EXCLUDED.max_committed_epoch, safe_epoch = EXCLUDED.safe_epoch,
 trivial_move = EXCLUDED.trivial_move, full_version_delta = EXCLUDED.full_version_delta RETURNING id`,
		Args: []string{text(d.ID), text(d.PrevID), `\x` + hex.EncodeToString(encoded)},
	}
	for _, st := range append([]pool.Statement{first}, more...) {
		res, err := tx.Exec(st)
		if err == nil && len(res.Rows) == 0 && strings.HasPrefix(st.SQL, "INSERT") {
			err = errors.New("RecordNotInserted: None of the records are inserted")
		}
		if err != nil {
			tx.Rollback()
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	h.version.Apply(d)
	for pushed := range h.subscribers {
		select {
		case pushed <- wire.EncodePush(encoded):
		default: // a reader that is so late is gone
		}
	}
	if h.version.ID%checkpointEvery == 0 {
		h.checkpoint()
	}
	return nil
}

// checkpoint truncates the log of deltas, once the version is in the store.
func (h *hummock) checkpoint() {
	_, err := h.c.query(`INSERT INTO metasim_checkpoint (k, version) VALUES (0, $1)
ON CONFLICT (k) DO UPDATE SET version = EXCLUDED.version`, `\x`+hex.EncodeToString(h.version.Encode()))
	if err == nil && h.version.ID > keepDeltas {
		_, err = h.c.query("DELETE FROM hummock_version_delta WHERE id <= $1", text(h.version.ID-keepDeltas))
	}
	if err != nil {
		log.Printf("WARN risingwave_meta::hummock: delete version deltas error=%v", err)
	}
}

func (h *hummock) current() wire.HummockVersion {
	h.mu.Lock()
	defer h.mu.Unlock()
	return wire.HummockVersion{ID: h.version.ID, Tables: maps.Clone(h.version.Tables)}
}
