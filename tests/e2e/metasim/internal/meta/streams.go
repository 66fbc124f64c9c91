// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"metasim/internal/wire"
)

// handle is one open control stream with a connection of its own.
type handle struct {
	conn   *grpc.ClientConn
	stream grpc.ClientStream
	cancel context.CancelFunc
}

func (h *handle) send(c wire.Control) error {
	b := c.Encode()
	return h.stream.SendMsg(&b)
}

func (h *handle) receive() (wire.Control, error) {
	var b []byte
	if err := h.stream.RecvMsg(&b); err != nil {
		return wire.Control{}, err
	}
	return wire.DecodeControl(b)
}

// drop closes the connection: the compute node sees the end of the stream and nothing else.
func (h *handle) drop() {
	h.cancel()
	_ = h.conn.Close()
}

// openStream connects, sends Init and waits for the answer: the connect has a limit, the answer none.
func openStream(ctx context.Context, host wire.Host) (*handle, error) {
	conn, err := grpc.NewClient("passthrough:///"+host.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})), grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &handle{conn: conn, cancel: cancel}
	if err := h.connect(ctx); err != nil {
		h.drop()
		return nil, err
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	h.stream, err = conn.NewStream(ctx, desc, wire.MethodControl)
	if err == nil {
		err = h.send(wire.Control{Kind: wire.RequestInit})
	}
	var first wire.Control
	if err == nil {
		first, err = h.receive()
	}
	if err == nil && first.Kind != wire.ResponseInit {
		err = fmt.Errorf("get unexpected response %d", first.Kind)
	}
	if err != nil {
		h.drop()
		return nil, err
	}
	return h, nil
}

const streamConnectTimeout = 5 * time.Second

func (h *handle) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streamConnectTimeout)
	defer cancel()
	h.conn.Connect()
	for {
		switch s := h.conn.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure:
			return errors.New("connect to " + h.conn.Target() + " failed")
		default:
			if !h.conn.WaitForStateChange(ctx, s) {
				return errors.New("connect to " + h.conn.Target() + " timed out")
			}
		}
	}
}

// stream is what the barrier worker has of one worker id: a handle, or an attempt to get one.
type stream struct {
	worker  wire.Worker
	handle  *handle // nil: reconnecting
	removed bool
	ctx     context.Context
	cancel  context.CancelFunc
}

// streamEvent is news of a stream. One of its fields besides the stream is set.
type streamEvent struct {
	stream    *stream
	connected *handle
	response  wire.Control
	err       error
}

// forget gives up a handle that nobody waits for any more.
func (ev streamEvent) forget() {
	if ev.connected != nil {
		ev.connected.drop()
	}
}

// streams are the control streams by worker id. By id only: two ids of one endpoint are two streams here.
type streams struct {
	jour   *journal
	limit  time.Duration // of the delay between two attempts
	pause  func(point string, fields ...field)
	byID   map[uint32]*stream
	events chan streamEvent
}

func newStreams(c *cluster, limit time.Duration) *streams {
	return &streams{jour: c.jour, limit: limit, pause: c.pauseAt, byID: map[uint32]*stream{}, events: make(chan streamEvent, 64)}
}

// clear drops all handles. It sends nothing: nobody resets anything because a stream ends.
func (s *streams) clear() {
	for id, st := range s.byID {
		st.close()
		delete(s.byID, id)
	}
}

func (st *stream) close() {
	st.cancel()
	if st.handle != nil {
		st.handle.drop()
	}
}

// isCurrent tells news of a stream that was replaced or dropped meanwhile.
func (s *streams) isCurrent(ev streamEvent) bool {
	return s.byID[ev.stream.worker.ID] == ev.stream
}

func (s *streams) put(w wire.Worker, h *handle) *stream {
	st := &stream{worker: w}
	st.ctx, st.cancel = context.WithCancel(context.Background())
	s.byID[w.ID] = st
	if h == nil {
		go s.reconnect(st)
	} else {
		s.adopt(st, h)
	}
	return st
}

// adopt starts to read a new handle.
func (s *streams) adopt(st *stream, h *handle) {
	st.handle = h
	s.jour.Line("stream_connected", kv("worker", st.worker.ID), kv("host", st.worker.Host))
	go func() {
		for {
			c, err := h.receive()
			if !s.deliver(st, streamEvent{stream: st, response: c, err: err}) || err != nil {
				return
			}
		}
	}()
}

func (s *streams) deliver(st *stream, ev streamEvent) bool {
	select {
	case s.events <- ev:
		return true
	case <-st.ctx.Done():
		return false
	}
}

// reconnect tries for ever: after 0.5 s, then 50 s, then each minute, since each factor is the base again.
func (s *streams) reconnect(st *stream) {
	for delay := 500 * time.Millisecond; ; delay = min(delay*100, s.limit) {
		select {
		case <-time.After(min(delay, s.limit)):
		case <-st.ctx.Done():
			return
		}
		s.pause("stream-reconnect", kv("worker", st.worker.ID))
		h, err := openStream(st.ctx, st.worker.Host)
		if err == nil {
			if !s.deliver(st, streamEvent{stream: st, connected: h}) {
				h.drop()
			}
			return
		}
		log.Printf("WARN risingwave_meta::barrier::rpc: fail to create control stream worker id=%d %s error=%v",
			st.worker.ID, st.worker.Host, err)
	}
}

// failed turns a connected stream into a reconnecting one, or forgets it if its worker is gone.
func (s *streams) failed(st *stream, err error, isShutdown bool) {
	log.Printf("WARN risingwave_meta::barrier::rpc: get error from response stream worker_id=%d host=%s error=%v",
		st.worker.ID, st.worker.Host, err)
	s.jour.Line("stream_error", kv("worker", st.worker.ID), kv("host", st.worker.Host), kv("msg", err.Error()))
	if st.handle != nil {
		st.handle.drop()
		st.handle = nil
	}
	if st.removed || isShutdown {
		st.cancel()
		delete(s.byID, st.worker.ID)
		return
	}
	go s.reconnect(st)
}

// add opens a stream for a worker that was activated. The whole barrier worker waits for it.
func (s *streams) add(w wire.Worker) {
	if st := s.byID[w.ID]; st != nil {
		log.Printf("WARN risingwave_meta::barrier::rpc: node already exists id=%d host=%s", w.ID, w.Host)
		if st.handle != nil {
			return
		}
		st.close()
		delete(s.byID, w.ID)
	}
	const attempts = 5
	delay := 500 * time.Millisecond
	for range attempts {
		h, err := openStream(context.Background(), w.Host)
		if err == nil {
			s.put(w, h)
			return
		}
		log.Printf("ERROR risingwave_meta::barrier::rpc: fail to resolve worker node address %s error=%v", w.Host, err)
		time.Sleep(delay)
		delay = min(delay*100, 3*time.Second)
	}
	log.Printf("ERROR risingwave_meta::barrier::rpc: fail to create worker node after retry %s", w.Host)
}

func (s *streams) remove(id uint32) {
	st := s.byID[id]
	switch {
	case st == nil:
	case st.handle != nil:
		st.removed = true // the stream goes on until the other side ends it
	default:
		st.close()
		delete(s.byID, id)
	}
}

func (s *streams) isConnected(id uint32) bool {
	st := s.byID[id]
	return st != nil && st.handle != nil
}

// recover opens a stream for each worker of a snapshot, all at once, and waits for all.
func (s *streams) recover(workers map[uint32]wire.Worker) {
	type result struct {
		worker wire.Worker
		handle *handle
		err    error
	}
	results := make(chan result)
	for _, w := range workers {
		go func() {
			h, err := openStream(context.Background(), w.Host)
			results <- result{w, h, err}
		}()
	}
	for range workers {
		r := <-results
		if r.err != nil {
			log.Printf("WARN risingwave_meta::barrier::rpc: failed to connect to node %d %s error=%v", r.worker.ID, r.worker.Host, r.err)
			s.jour.Line("stream_unconnected", kv("worker", r.worker.ID), kv("host", r.worker.Host), kv("msg", r.err.Error()))
		}
		s.put(r.worker, r.handle)
	}
}
