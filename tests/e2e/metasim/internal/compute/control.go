// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"log"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/journal"
	"metasim/internal/process"
	"metasim/internal/wire"
)

// control is one accepted control stream.
type control struct {
	number int
	stream grpc.ServerStream
	done   chan error // ends the RPC
	mu     sync.Mutex
	closed bool
}

func (c *control) send(m wire.Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	b := m.Encode()
	_ = c.stream.SendMsg(&b) // a lost stream is told by its reader
}

func (c *control) end(err error) {
	select {
	case c.done <- err:
	default:
	}
}

// worker is the local barrier worker: one queue, one stream, and the actors. It looks at neither the term nor the
// sender of a new stream: the last one wins.
type worker struct {
	jour  *journal.Journal
	opt   *options
	id    uint32
	store *storage
	// queue holds what the one task of the worker does, in order: streams, requests, their ends, questions.
	queue chan func()

	// Of that task only.
	current *control
	waiting map[uint64]*collection // by epoch
	ending  []*actor               // asked to end by a reset of the database

	mu     sync.Mutex
	opened int
	actors map[uint32]*actor
	live   map[*actor]bool // whose future has not ended: what is counted
	rows   map[uint32]uint64
}

// collection is a barrier on its way through the actors.
type collection struct {
	from *control
	left map[uint32]bool
}

const queueSize = 1 << 12

func newWorker(j *journal.Journal, o *options, id uint32, s *storage) *worker {
	return &worker{
		jour: j, opt: o, id: id, store: s, queue: make(chan func(), queueSize), waiting: map[uint64]*collection{},
		actors: map[uint32]*actor{}, live: map[*actor]bool{}, rows: map[uint32]uint64{},
	}
}

func (w *worker) run() {
	for step := range w.queue {
		step()
	}
}

func (w *worker) panic(format string, args ...any) {
	why := logPanic(format, args...)
	w.jour.Line("panic", journal.KV("worker", w.id), journal.KV("why", why))
	process.Abort(w.jour)
}

// ended drops the handle of a stream; the actors go on.
func (w *worker) ended(c *control) {
	if w.current == c {
		w.current = nil
		w.jour.Line("stream_end", journal.KV("n", c.number))
	}
}

// accept resets everything for a new stream, also if its caller has left meanwhile.
func (w *worker) accept(c *control) {
	if w.current != nil {
		log.Printf("WARN risingwave_stream::task::barrier_worker: control stream has been reset to a new one")
		w.jour.Line("stream_reset", journal.KV("n", w.current.number), journal.KV("by", c.number))
		w.current.end(status.Error(codes.Internal, "control stream has been reset to a new one"))
		w.current = nil
	}
	w.jour.Line("reset_begin", journal.KV("n", c.number))
	w.abortAll()
	w.join(w.ending)
	w.ending = nil
	w.current = c
	w.jour.Line("stream_open", journal.KV("n", c.number))
	c.send(wire.Control{Kind: wire.ResponseInit})
}

// abortAll asks all actors to end.
func (w *worker) abortAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, a := range w.actors {
		close(a.aborted)
		w.ending = append(w.ending, a)
		delete(w.actors, id)
	}
	clear(w.waiting)
}

// join waits for the end of actors: until then they count.
func (w *worker) join(actors []*actor) {
	for _, a := range actors {
		<-a.ended
	}
	if len(actors) > 0 {
		w.jour.Line("actors_aborted", journal.KV("n", len(actors)))
	}
}

func (w *worker) obey(c *control, r wire.Control) {
	if w.current != c {
		return
	}
	switch r.Kind {
	case wire.RequestInject:
		w.inject(c, r)
	case wire.RequestReset:
		// Unlike Init it does not hold up the worker.
		w.abortAll()
		actors := slices.Clone(w.ending)
		go func() {
			w.join(actors)
			w.queue <- func() {
				w.ending = slices.DeleteFunc(w.ending, (*actor).hasEnded)
				c.send(wire.Control{Kind: wire.ResponseReset, Number: r.Number})
			}
		}()
	default:
		c.end(status.Errorf(codes.InvalidArgument, "unexpected request %d", r.Kind))
	}
}

// inject builds actors and sends the barrier through all of them.
func (w *worker) inject(c *control, r wire.Control) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range r.Build {
		a := w.newActor(n)
		w.actors[n.ID] = a
		go a.run()
	}
	if len(r.Build) > 0 {
		w.jour.Line("actors_built", journal.KV("actors", actorIDs(r.Build)))
	}
	p := &collection{from: c, left: map[uint32]bool{}}
	for id, a := range w.actors {
		p.left[id] = true
		a.inbox <- message{epoch: r.Epoch, isStop: slices.Contains(r.Stop, id)}
	}
	w.waiting[r.Epoch] = p
	w.answer(r.Epoch)
}

func actorIDs(actors []wire.NewActor) (ids []uint32) {
	for _, a := range actors {
		ids = append(ids, a.ID)
	}
	return ids
}

// collected is told by an actor that a barrier has passed it.
func (w *worker) collected(a *actor, m message) {
	w.mu.Lock()
	a.epoch = m.epoch
	w.mu.Unlock()
	w.queue <- func() {
		p := w.waiting[m.epoch]
		if p == nil || !p.left[a.ID] {
			return
		}
		delete(p.left, a.ID)
		if m.isStop {
			w.mu.Lock()
			delete(w.actors, a.ID)
			w.mu.Unlock()
		}
		w.answer(m.epoch)
	}
}

// answer tells of a barrier that has passed all actors.
func (w *worker) answer(epoch uint64) {
	p := w.waiting[epoch]
	if len(p.left) > 0 {
		return
	}
	delete(w.waiting, epoch)
	p.from.send(wire.Control{Kind: wire.ResponseComplete, Epoch: epoch, Number: uint64(w.id)})
}

// failed reports the error of an actor, if anybody listens.
func (w *worker) failed(err error) {
	w.queue <- func() {
		if w.current != nil {
			w.current.send(wire.Control{Kind: wire.ResponseFailure, Error: err.Error()})
		}
	}
}

func (w *worker) enter(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[a] = true
}

func (w *worker) leave(a *actor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, a)
}

// serve is the RPC. The first message has to be Init.
func (w *worker) serve(_ any, stream grpc.ServerStream) error {
	first, err := receive(stream)
	if err != nil {
		return err
	}
	if first.Kind != wire.RequestInit {
		return status.Errorf(codes.InvalidArgument, "the first request is %d, want Init", first.Kind)
	}
	w.mu.Lock()
	w.opened++
	c := &control{number: w.opened, stream: stream, done: make(chan error, 1)}
	w.mu.Unlock()
	w.queue <- func() { w.accept(c) }
	go func() {
		for {
			r, err := receive(stream)
			if err != nil {
				w.queue <- func() { w.ended(c) }
				c.end(nil)
				return
			}
			w.queue <- func() { w.obey(c, r) }
		}
	}()
	err = <-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return err
}

func receive(stream grpc.ServerStream) (wire.Control, error) {
	var b []byte
	if err := stream.RecvMsg(&b); err != nil {
		return wire.Control{}, err
	}
	return wire.DecodeControl(b)
}

// shutDown says good-bye on the stream; it waits behind whatever the queue does.
func (w *worker) shutDown() {
	done := make(chan struct{})
	w.queue <- func() {
		if w.current != nil {
			w.current.send(wire.Control{Kind: wire.ResponseShutdown})
		}
		close(done)
	}
	<-done
}
