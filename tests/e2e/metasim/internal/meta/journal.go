// SPDX-License-Identifier: Apache-2.0

package meta

import base "metasim/internal/journal"

type (
	journal = base.Journal
	field   = base.Field
)

func kv(key string, value any) field { return base.KV(key, value) }
