// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"reflect"
	"testing"
)

func TestRoundTrips(t *testing.T) {
	h := Host{"compute-0.compute.ns.svc", 5688}
	p := &Property{IsStreaming: true, IsIcebergCompactor: true, InternalHost: "10.0.0.7:5688", ResourceGroup: "default", Parallelism: 8}
	r := Resource{Version: Version, Memory: 1 << 40, Cores: 16, Hostname: "c"}
	for _, w := range []Worker{
		{ID: 7, Type: TypeCompute, State: StateRunning, Host: h, Property: p, TransactionID: 0, Resource: &r, StartedAt: 1},
		{Type: TypeMeta, TransactionID: -1},
	} {
		if got, err := DecodeWorker(w.Encode()); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("%+v %v, want %+v", got, err, w)
		}
	}
	add := AddRequest{Type: TypeCompute, Host: h, Property: p, Resource: r}
	if got, err := DecodeAddRequest(add.Encode()); err != nil || !reflect.DeepEqual(got, add) {
		t.Errorf("%+v %v, want %+v", got, err, add)
	}
	host := HostRequest{Host: h, NodeID: 3}
	if got, err := DecodeHostRequest(host.Encode()); err != nil || got != host {
		t.Errorf("%+v %v, want %+v", got, err, host)
	}
	inject := Control{Kind: RequestInject, Epoch: 1 << 60, Number: 2, Stop: []uint32{1, 300},
		Build: []NewActor{{ID: 7, Fragment: 101, Tables: []uint32{3, 300}, Definition: "CREATE"}, {ID: 8}}}
	if got, err := DecodeControl(inject.Encode()); err != nil || !reflect.DeepEqual(got, inject) {
		t.Errorf("%+v %v, want %+v", got, err, inject)
	}
	actors := []Actor{{1, 1, 2}, {2, 1, 3}}
	if got, err := DecodeActors(EncodeActors(actors)); err != nil || !reflect.DeepEqual(got, actors) {
		t.Errorf("%v %v, want %v", got, err, actors)
	}
}

// An Init is read whatever it carries: a term in field 1 or 2, or databases.
func TestInit(t *testing.T) {
	if b := (Control{Kind: RequestInit}).Encode(); !bytes.Equal(b, []byte{0x0a, 0x00}) {
		t.Errorf("%x, want 0a00", b)
	}
	for _, body := range [][]byte{nil, Bytes(nil, 1, "a term"), Bytes(nil, 2, "a term")} {
		if got, err := DecodeControl(Bytes(nil, 1, body)); err != nil || got.Kind != RequestInit {
			t.Errorf("%+v %v", got, err)
		}
	}
}

func TestDamage(t *testing.T) {
	whole := Worker{ID: 7, Host: Host{"h", 1}, TransactionID: 5}.Encode()
	for n := range whole {
		if _, err := DecodeWorker(append(bytes.Clone(whole[:n]), 0xff)); err == nil {
			t.Errorf("%d bytes and a broken tag: no error", n)
		}
	}
}

// Field 9 is at the top level and nowhere else, whatever the bytes of nested messages look like.
func TestVersionDelta(t *testing.T) {
	commit := VersionDelta{ID: 300, PrevID: 299, Committed: map[uint32]uint64{7: 1 << 60, 9: 1 << 60}}
	removal := VersionDelta{ID: 301, PrevID: 300, Removed: []uint32{7, 300}, Committed: map[uint32]uint64{}}
	for _, d := range []VersionDelta{commit, removal} {
		if got, err := DecodeVersionDelta(d.Encode()); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v %v, want %+v", got, err, d)
		}
	}
	if n := bytes.Count(commit.Encode(), []byte(lookAlike)); n != 4 {
		t.Errorf("%d look-alikes in a commit, want 4", n)
	}
	if got := removal.Encode(); !bytes.Equal(got, []byte("\x08\xad\x02\x10\xac\x02\x4a\x03\x07\xac\x02")) {
		t.Errorf("a removal is %x", got)
	}
	unpacked, err := DecodeVersionDelta(Varint(Varint(Varint(nil, 1, 5), 9, 7), 9, 300))
	if err != nil || !reflect.DeepEqual(unpacked.Removed, []uint32{7, 300}) {
		t.Errorf("unpacked: %v %v", unpacked.Removed, err)
	}

	v := HummockVersion{Tables: map[uint32]uint64{}}
	for _, m := range [][]byte{EncodeSnapshot(HummockVersion{ID: 299, Tables: map[uint32]uint64{7: 1, 300: 1}}), EncodePush(commit.Encode())} {
		if removed, err := v.Take(m); err != nil || removed != nil {
			t.Errorf("%v %v", removed, err)
		}
	}
	removed, err := v.Take(EncodePush(removal.Encode()))
	if err != nil || !reflect.DeepEqual(removed, removal.Removed) || !reflect.DeepEqual(v, HummockVersion{301, map[uint32]uint64{9: 1 << 60}}) {
		t.Errorf("%v %v: version %v", removed, err, v)
	}
}
