// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/journal"
	"metasim/internal/wire"
)

// stats is GetStreamingStats: how many actors of a fragment run, also those that were told to end and have not.
func (w *worker) stats(context.Context, []byte) ([]byte, error) {
	type fragment struct{ actors, epoch uint64 }
	w.mu.Lock()
	defer w.mu.Unlock()
	fragments := map[uint32]fragment{}
	for a := range w.live {
		f := fragments[a.Fragment]
		if f.actors == 0 || a.epoch < f.epoch {
			f.epoch = a.epoch
		}
		f.actors++
		fragments[a.Fragment] = f
	}
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(fragments)) {
		m := wire.Varint(wire.Varint(nil, 2, fragments[id].actors), 3, fragments[id].epoch)
		b = wire.Bytes(b, 2, wire.Bytes(wire.Varint(nil, 1, uint64(id)), 2, m))
	}
	return b, nil
}

// trace is StackTrace. The task of the barrier worker answers it: it hangs for as long as a reset does.
func (w *worker) trace(ctx context.Context, _ []byte) ([]byte, error) {
	answer := make(chan []byte, 1)
	w.queue <- func() { answer <- w.describe() }
	select {
	case b := <-answer:
		return b, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (w *worker) describe() (b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	byID := func(a, b *actor) int { return cmp.Compare(a.ID, b.ID) }
	for _, a := range slices.SortedFunc(maps.Keys(w.live), byID) {
		// An executor's number has the actor in its upper half; no fragment, job or table is named.
		text := fmt.Sprintf("Actor %d: `%s`\n  Epoch %d [1s]\n    OverWindow %X [1s]\n", a.ID, a.Definition, a.epoch, uint64(a.ID)<<32|1)
		b = wire.Bytes(b, 1, wire.Bytes(wire.Varint(nil, 1, uint64(a.ID)), 2, text))
		ids = append(ids, fmt.Sprint(a.ID))
	}
	text := fmt.Sprintf("has_control_stream_connected: %t\n", w.current != nil)
	if len(ids) > 0 {
		const databaseGraph = 1<<32 | 0xffffffff
		text += fmt.Sprintf("partial graph %d status: running\nrunning_actors: %s\n", uint64(databaseGraph), strings.Join(ids, ", "))
	}
	return wire.Bytes(b, 5, wire.Bytes(wire.Varint(nil, 1, uint64(w.id)), 2, text))
}

// update is ours: a chunk for the actors of a fragment, which deletes a row that is there. It says how many got it.
func (w *worker) update(_ context.Context, in []byte) ([]byte, error) {
	fragment, err := wire.Number(in, 1)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "request: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := uint64(0)
	w.rows[uint32(fragment)]++
	for _, a := range w.actors {
		if a.Fragment == uint32(fragment) && len(a.Tables) > 0 {
			a.inbox <- message{row: w.rows[a.Fragment]}
			n++
		}
	}
	if n == 0 {
		return nil, status.Errorf(codes.NotFound, "no actor of fragment %d with state runs here", fragment)
	}
	w.jour.Line("update", journal.KV("fragment", fragment), journal.KV("row", w.rows[uint32(fragment)]))
	return wire.Varint(nil, 1, n), nil
}

func (w *worker) server() *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "stream_service.StreamService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "StreamingControlStream", Handler: w.serve, ServerStreams: true, ClientStreams: true}},
	}, struct{}{})
	unary := wire.Services{}
	unary.Add(wire.MethodStats, w.stats)
	unary.Add(wire.MethodTrace, w.trace)
	unary.Add(wire.MethodUpdate, w.update)
	unary.Register(s)
	return s
}
