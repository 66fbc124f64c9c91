// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/schema"
	"metasim/internal/wire"
)

// versions counts notifications to frontends: in memory, written as an absolute number.
type versions struct {
	sync.Mutex
	current int64
}

const notificationVersion = "NOTIFICATION"

func (c *cluster) loadVersions() (*versions, error) {
	res, err := c.query("SELECT version FROM catalog_version WHERE name = $1", notificationVersion)
	if err != nil {
		return nil, err
	}
	if len(res.Rows) > 0 {
		return &versions{current: number(res.Rows[0][0])}, nil
	}
	_, err = c.query("INSERT INTO catalog_version (name, version) VALUES ($1, 1)", notificationVersion)
	return &versions{current: 1}, err
}

func (c *cluster) notifyFrontends() {
	c.versions.Lock()
	defer c.versions.Unlock()
	c.versions.current++
	res, err := c.query("UPDATE catalog_version SET version = $1 WHERE name = $2", text(c.versions.current), notificationVersion)
	if err == nil && res.Tag == "UPDATE 0" {
		err = errors.New("RecordNotUpdated")
	}
	if err != nil {
		c.abort("called `Result::unwrap()` on an `Err` value: increase notification version: %v", err)
	}
}

// hummock is the storage's version as the leader holds it: ids are given out from memory.
type hummock struct {
	c  *cluster
	mu sync.Mutex // over SQL too
	// version has the id of the newest delta; pinned are the workers with a pinned version.
	version     wire.HummockVersion
	pinned      map[uint32]bool
	subscribers map[chan []byte]bool
}

const (
	// keepDeltas is how many deltas stay behind the checkpoint, which is made each checkpointEvery of them.
	keepDeltas      = 10
	checkpointEvery = 30
)

// loadHummock also releases what workers pinned that are gone by now.
func (c *cluster) loadHummock() (*hummock, error) {
	h := &hummock{c: c, pinned: map[uint32]bool{}, subscribers: map[chan []byte]bool{}}
	if err := h.replay(); err != nil {
		return nil, err
	}
	res, err := c.query("SELECT context_id FROM hummock_pinned_version")
	if err != nil {
		return nil, err
	}
	for _, row := range res.Rows {
		id := uint32(number(row[0]))
		if c.extra[id] != nil {
			h.pinned[id] = true
		} else if _, err := c.query("DELETE FROM hummock_pinned_version WHERE context_id = $1", text(id)); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"now", "sstable_object"} {
		_, err = c.query("INSERT INTO hummock_sequence (name, seq) VALUES ($1, 1) ON CONFLICT (name) DO NOTHING", name)
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

// subscribe notes which version a worker reads, and sends it all that come after; checkContext is where releases differ.
func (h *hummock) subscribe(id uint32) (first []byte, pushed chan []byte, err error) {
	if err := h.checkContext(id); err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err = h.c.query(`INSERT INTO hummock_pinned_version (context_id, min_pinned_id) VALUES ($1, $2)
ON CONFLICT (context_id) DO UPDATE SET min_pinned_id = EXCLUDED.min_pinned_id`, text(id), text(h.version.ID))
	if err != nil {
		return nil, nil, sqlError(err)
	}
	h.pinned[id] = true
	pushed = make(chan []byte, 1<<12)
	h.subscribers[pushed] = true
	return wire.EncodeSnapshot(h.version), pushed, nil
}

func (h *hummock) unsubscribe(pushed chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subscribers, pushed)
}

func (h *hummock) checkContext(id uint32) error {
	known := false
	if h.c.release.AtLeast(schema.Head) {
		h.c.mu.RLock()
		known = h.c.extra[id] != nil
		h.c.mu.RUnlock()
	} else {
		res, err := h.c.query("SELECT 1 FROM worker WHERE worker_id = $1", text(id))
		if err != nil {
			return sqlError(err)
		}
		known = len(res.Rows) > 0
	}
	if !known {
		return status.Errorf(codes.Internal, "invalid hummock context %d", id)
	}
	return nil
}

func (h *hummock) release(id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.pinned[id] {
		return
	}
	delete(h.pinned, id)
	if _, err := h.c.query("DELETE FROM hummock_pinned_version WHERE context_id = $1", text(id)); err != nil {
		h.c.abort("Failed to release hummock context %d, error=%v", id, err)
	}
}
