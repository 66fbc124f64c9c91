// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"metasim/internal/journal"
	"metasim/internal/process"
	"metasim/internal/wire"
)

// node is one compute process.
type node struct {
	opt    *options
	jour   *journal.Journal
	host   wire.Host
	metas  *metaClient
	worker *worker
	store  *storage
	// isShuttingDown is set before the row is deleted: that the meta does not know the id is no news then.
	isShuttingDown atomic.Bool
}

// Main runs `metasim compute-node` and returns the exit status, if it returns.
func Main(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var j *journal.Journal
	if err == nil {
		j, err = journal.Open(o.witness, o.advertise, "", journal.NewIncarnation())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim compute-node:", err)
		return 2
	}
	host, _ := wire.ParseHost(o.advertise) // checked
	n := &node{opt: o, jour: j, host: host, store: newStorage()}
	n.run()
	process.Exit(j, 0)
	return 0
}

// run returns after TERM.
func (n *node) run() {
	stop := make(chan os.Signal, 4)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	n.jour.Line("start", journal.KV("listen", n.opt.listen))
	n.pauseAt("start")
	n.register()
	n.pauseAt("registered")
	ctx := context.Background()
	go n.metas.watchMembers(ctx)
	go n.heartbeats(ctx)
	n.subscribe(ctx)
	go n.worker.run()
	lis, err := net.Listen("tcp", n.opt.listen)
	if err != nil {
		n.panic("failed to bind %s: %v", n.opt.listen, err)
	}
	server := n.worker.server()
	go func() { _ = server.Serve(lis) }()
	n.activate(ctx)
	<-stop
	n.unregister(ctx)
	n.worker.shutDown()
	server.Stop()
}

func (n *node) pauseAt(point string) { process.PauseAt(n.jour, n.opt.pauseDir, point) }

func (n *node) panic(format string, args ...any) {
	logPanic(format, args...)
	process.Abort(n.jour)
}

func logPanic(format string, args ...any) (why string) {
	why = fmt.Sprintf(format, args...)
	log.Print("panic: " + why)
	return why
}

// isFromServer tells an answer of a meta from a failure on the way; what a follower does not serve is no answer.
func isFromServer(err error) bool {
	switch s := status.Convert(err); s.Code() {
	case codes.Internal, codes.InvalidArgument:
		return true
	case codes.Unavailable:
		return s.Message() == "no available reusable machine id"
	default:
		return false
	}
}

// register ends the process if the leader says no, or nobody answers for long.
func (n *node) register() {
	request := wire.AddRequest{
		Type: wire.TypeCompute, Host: n.host,
		Property: &wire.Property{IsStreaming: true, IsServing: true, Parallelism: uint32(n.opt.parallelism)},
		Resource: wire.Resource{Version: wire.Version, Memory: 1 << 30, Cores: 1, Hostname: n.host.Host},
	}.Encode()
	var id uint64
	err := retry(n.opt.maxHeartbeat, isFromServer, func() error {
		ctx := context.Background()
		m, err := newMetaClient(ctx, n.opt)
		if err != nil {
			return err
		}
		out, err := m.call(ctx, wire.MethodAdd, request)
		if err == nil {
			id, err = wire.Number(out, 2)
		}
		if err != nil {
			m.close()
			return err
		}
		n.metas = m
		return nil
	})
	if err != nil {
		log.Printf("ERROR risingwave_rpc_client: failed to register worker, exiting... error=%v", err)
		n.jour.Line("register_failed", journal.KV("msg", err.Error()))
		process.Exit(n.jour, 1)
	}
	n.worker = newWorker(n.jour, n.opt, uint32(id), n.store)
	n.jour.Line("registered", journal.KV("worker", id), journal.KV("leader", n.metas.leaderAddress()))
}

// heartbeats end the process if the meta does not know the id. A time-out alone looks for no other leader.
func (n *node) heartbeats(ctx context.Context) {
	for {
		next := time.Now().Add(n.opt.heartbeat)
		hctx, cancel := context.WithTimeout(ctx, 3*n.opt.heartbeat)
		out, err := n.metas.call(hctx, wire.MethodHeartbeat, wire.Varint(nil, 1, uint64(n.worker.id)))
		cancel()
		code, message, _ := wire.Status(out)
		leader := journal.KV("leader", n.metas.leaderAddress())
		switch {
		case err != nil:
			log.Printf("WARN risingwave_rpc_client::meta_client: Failed to send_heartbeat: error=%v", err)
			n.jour.Line("heartbeat", journal.KV("worker", n.worker.id), leader, journal.KV("ok", false), journal.KV("msg", err.Error()))
		case code == wire.StatusUnknownWorker && n.isShuttingDown.Load():
		case code == wire.StatusUnknownWorker:
			log.Printf("ERROR risingwave_rpc_client::meta_client: worker expired: %s", message)
			n.jour.Line("unknown_worker", journal.KV("worker", n.worker.id), leader)
			process.Exit(n.jour, 1)
		default:
			n.jour.Line("heartbeat", journal.KV("worker", n.worker.id), leader, journal.KV("ok", true))
		}
		time.Sleep(time.Until(next))
	}
}

// subscribe pins a version with the leader, and does so again whenever the stream breaks.
func (n *node) subscribe(ctx context.Context) {
	var stream grpc.ClientStream
	open := func() (err error) {
		stream, err = n.openSubscription(ctx)
		return err
	}
	if err := retry(n.opt.maxHeartbeat, func(error) bool { return false }, open); err != nil {
		n.panic("subscribe: %v", err)
	}
	n.noteSubscribed()
	go func() {
		for {
			var b []byte
			if stream.RecvMsg(&b) == nil {
				n.takeVersion(b)
				continue
			}
			for open() != nil {
				time.Sleep(time.Second)
			}
			n.noteSubscribed()
		}
	}()
}

func (n *node) noteSubscribed() {
	version, tables := n.store.describe()
	n.jour.Line("subscribed", journal.KV("worker", n.worker.id), journal.KV("version", version), journal.KV("tables", tables))
}

// takeVersion makes all reads from now on see what a meta pushed.
func (n *node) takeVersion(message []byte) {
	n.pauseAt("version-pushed")
	version, removed, err := n.store.take(message)
	if err != nil {
		n.panic("version of the meta: %v", err)
	}
	if len(removed) > 0 {
		n.jour.Line("version_removed", journal.KV("version", version), journal.KV("tables", removed))
	}
}

func (n *node) openSubscription(ctx context.Context) (grpc.ClientStream, error) {
	request := wire.Varint(wire.Bytes(wire.Varint(nil, 1, 2), 2, wire.HostBytes(n.host)), 3, uint64(n.worker.id))
	stream, err := n.metas.conn().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, wire.MethodSubscribe)
	if err == nil {
		err = stream.SendMsg(&request)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	var snapshot []byte
	if err == nil {
		err = stream.RecvMsg(&snapshot)
	}
	if err == nil {
		_, _, err = n.store.take(snapshot)
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.Unimplemented || code == codes.Unknown {
		n.metas.tryRefresh(ctx)
	}
	return stream, err
}

// activate is retried whatever the error is; at the bound it panics.
func (n *node) activate(ctx context.Context) {
	request := wire.HostRequest{Host: n.host, NodeID: n.worker.id}.Encode()
	err := retry(n.opt.maxHeartbeat, func(error) bool { return false }, func() error {
		_, err := n.metas.call(ctx, wire.MethodActivate, request)
		if err != nil {
			n.jour.Line("activate_failed", journal.KV("worker", n.worker.id), journal.KV("msg", err.Error()))
		}
		return err
	})
	if err != nil {
		n.panic("called `Result::unwrap()` on an `Err` value: activate: %v", err)
	}
	n.jour.Line("activated", journal.KV("worker", n.worker.id), journal.KV("leader", n.metas.leaderAddress()))
}

// unregister deletes the row of the endpoint; the process ends whatever the answer is.
func (n *node) unregister(ctx context.Context) {
	n.isShuttingDown.Store(true)
	_, err := n.metas.call(ctx, wire.MethodDelete, wire.HostRequest{Host: n.host}.Encode())
	if err != nil {
		log.Printf("WARN risingwave_rpc_client::meta_client: Failed to unregister worker: error=%v", err)
		n.jour.Line("unregister", journal.KV("worker", n.worker.id), journal.KV("ok", false), journal.KV("msg", err.Error()))
		return
	}
	n.jour.Line("unregister", journal.KV("worker", n.worker.id), journal.KV("ok", true))
}
