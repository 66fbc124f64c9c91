// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// VersionDelta is hummock.HummockVersionDelta as far as metas and compute nodes here read it.
type VersionDelta struct {
	ID, PrevID uint64
	Removed    []uint32          // removed_table_ids
	Committed  map[uint32]uint64 // state_table_info_delta: epoch by table
}

// group is the compaction group of all tables.
const group = 2

// lookAlike is what a search for field 9 without a walk over the message takes for it.
const lookAlike = "\x4a\x02\x07\x09"

// Encode writes the fields as prost does, in ascending order. A commit also has fields 3 and 8, with the bytes of a
// field 9 inside of their messages.
func (d VersionDelta) Encode() []byte {
	b := optional(optional(nil, 1, d.ID), 2, d.PrevID)
	tables := slices.Sorted(maps.Keys(d.Committed))
	if len(tables) > 0 {
		b = Bytes(b, 3, entry(group, newLevel(d.ID, tables)))
		watermark := Bytes(nil, 1, Bytes(Bytes(nil, 1, lookAlike), 2, lookAlike))
		b = Bytes(b, 8, entry(uint64(tables[0]), Bytes(nil, 1, Varint(watermark, 2, d.Committed[tables[0]]))))
	}
	if len(d.Removed) > 0 {
		var packed []byte
		for _, id := range d.Removed {
			packed = protowire.AppendVarint(packed, uint64(id))
		}
		b = Bytes(b, 9, packed)
	}
	for _, id := range tables {
		b = Bytes(b, 11, entry(uint64(id), Varint(Varint(nil, 1, d.Committed[id]), 2, group)))
	}
	return b
}

func entry(key uint64, value []byte) []byte { return Bytes(Varint(nil, 1, key), 2, value) }

// newLevel is GroupDeltas with one SST of all tables.
func newLevel(id uint64, tables []uint32) []byte {
	sst := Bytes(Varint(Varint(nil, 1, id), 2, id), 3, Bytes(Bytes(nil, 1, lookAlike), 2, lookAlike))
	for _, t := range tables {
		sst = Varint(sst, 5, uint64(t))
	}
	return Bytes(nil, 1, Bytes(nil, 1, Bytes(nil, 4, Varint(sst, 9, id))))
}

// DecodeVersionDelta reads the fields of the top level.
func DecodeVersionDelta(b []byte) (d VersionDelta, err error) {
	d.Committed = map[uint32]uint64{}
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) (err error) {
		switch field {
		case 1:
			d.ID = number
		case 2:
			d.PrevID = number
		case 9:
			var ids []uint32
			ids, err = decodePacked(body, number)
			d.Removed = append(d.Removed, ids...)
		case 11:
			err = decodeInfo(d.Committed, body)
		}
		return err
	})
	return d, err
}

// decodePacked reads a repeated uint32 in either form: body is nil if it is not packed.
func decodePacked(body []byte, number uint64) (ids []uint32, err error) {
	if body == nil {
		return []uint32{uint32(number)}, nil
	}
	for len(body) > 0 {
		v, n := protowire.ConsumeVarint(body)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		ids, body = append(ids, uint32(v)), body[n:]
	}
	return ids, nil
}

func decodeInfo(committed map[uint32]uint64, b []byte) error {
	var table uint32
	var epoch uint64
	err := EachField(b, func(field protowire.Number, body []byte, number uint64) (err error) {
		if field == 1 {
			table = uint32(number)
			return nil
		}
		epoch, err = Number(body, 1)
		return err
	})
	committed[table] = epoch
	return err
}

// HummockVersion is hummock.HummockVersion: which tables there are.
type HummockVersion struct {
	ID     uint64
	Tables map[uint32]uint64 // committed epoch
}

// Encode writes id = 1 and state_table_info = 7.
func (v HummockVersion) Encode() []byte {
	b := optional(nil, 1, v.ID)
	for _, id := range slices.Sorted(maps.Keys(v.Tables)) {
		b = Bytes(b, 7, entry(uint64(id), Varint(Varint(nil, 1, v.Tables[id]), 3, group)))
	}
	return b
}

// DecodeVersion is its reverse.
func DecodeVersion(b []byte) (HummockVersion, error) {
	v := HummockVersion{Tables: map[uint32]uint64{}}
	err := EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			v.ID = number
		case 7:
			return decodeInfo(v.Tables, body)
		}
		return nil
	})
	return v, err
}

// Apply makes the next version of this one.
func (v *HummockVersion) Apply(d VersionDelta) {
	v.ID = d.ID
	for _, id := range d.Removed {
		delete(v.Tables, id)
	}
	maps.Copy(v.Tables, d.Committed)
}

// Operations and the fields of meta.SubscribeResponse's info.
const (
	operationUpdate   = 3
	operationSnapshot = 4

	infoDeltas   = 15
	infoSnapshot = 16
)

// EncodeSnapshot is the first message of a subscription, EncodePush a later one.
func EncodeSnapshot(v HummockVersion) []byte {
	return Bytes(Varint(nil, 2, operationSnapshot), infoSnapshot, Bytes(nil, 1, v.Encode()))
}

// EncodePush tells of a new version.
func EncodePush(delta []byte) []byte {
	return Bytes(Varint(nil, 2, operationUpdate), infoDeltas, Bytes(nil, 1, delta))
}

// Take applies a message of a subscription and returns the tables that went with it.
func (v *HummockVersion) Take(message []byte) (removed []uint32, err error) {
	err = EachField(message, func(field protowire.Number, body []byte, _ uint64) error {
		if field != infoDeltas && field != infoSnapshot {
			return nil
		}
		return EachField(body, func(_ protowire.Number, body []byte, _ uint64) (err error) {
			if field == infoSnapshot {
				*v, err = DecodeVersion(body)
				return err
			}
			d, err := DecodeVersionDelta(body)
			if err == nil {
				v.Apply(d)
				removed = append(removed, d.Removed...)
			}
			return err
		})
	})
	return removed, err
}
