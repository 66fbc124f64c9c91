// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"path/filepath"
	"time"

	"metasim/internal/journal"
)

// PauseAt stops the calling task while the file dir/point exists; without a dir there are no such points.
func PauseAt(j *journal.Journal, dir, point string, fields ...journal.Field) {
	if dir == "" {
		return
	}
	path := filepath.Join(dir, point)
	exists := func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
	if !exists() {
		return
	}
	fields = append([]journal.Field{journal.KV("at", point)}, fields...)
	j.Line("paused", fields...)
	for exists() {
		time.Sleep(2 * time.Millisecond)
	}
	j.Line("resumed", fields...)
}
