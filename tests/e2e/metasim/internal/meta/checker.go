// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"fmt"
	"log"
	"strings"
	"time"

	"metasim/internal/wire"
)

// checkHeartbeats removes expired workers for as long as the process lives: it asks nobody whether this
// process still leads, and deletes by endpoint what it chose by id.
func (c *cluster) checkHeartbeats() {
	for {
		next := time.Now().Add(time.Second) // a late tick delays the later ones
		expired, err := c.expired()
		if err != nil {
			log.Printf("WARN risingwave_meta::controller::cluster: Failed to load expire worker info from db error=%v", err)
		}
		if len(expired) > 0 {
			c.pauseAt("checker-loaded", kv("workers", expired))
		}
		for _, w := range expired {
			if _, err := c.remove(w.host, "expiry"); err != nil {
				log.Printf("WARN risingwave_meta::controller::cluster: Failed to delete expire worker from db error=%v", err)
				c.jour.Line("expiry_failed", kv("worker", w.id), kv("host", w.host), kv("msg", err.Error()))
				continue
			}
			log.Printf("WARN risingwave_meta::controller::cluster: Deleted expired worker worker_id=%d host_addr=%s", w.id, w.host)
		}
		time.Sleep(time.Until(next))
	}
}

type expiredWorker struct {
	id   uint32
	host wire.Host
}

func (w expiredWorker) String() string { return fmt.Sprintf("%d@%s", w.id, w.host) }

// expired finds ids in memory and endpoints in SQL; the lock is given up on return.
func (c *cluster) expired() ([]expiredWorker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Unix()
	var ids []string
	for id, info := range c.extra {
		if info.expireAt == 0 { // new ones and those of the snapshot get their first term here
			c.renew(info)
		}
		if info.expireAt < now {
			ids = append(ids, text(id))
		}
	}
	filter := "1 = 2" // sea-query's text for IN () of nothing: the statement is sent all the same
	if len(ids) > 0 {
		filter = "worker_id IN (" + strings.Join(ids, ", ") + ")"
	}
	res, err := c.query("SELECT worker_id, worker_type, host, port FROM worker WHERE " + filter)
	if err != nil {
		return nil, err
	}
	var found []expiredWorker
	for _, row := range res.Rows {
		found = append(found, expiredWorker{uint32(number(row[0])), wire.Host{Host: string(row[2]), Port: int32(number(row[3]))}})
	}
	return found, nil
}
