// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"metasim/internal/wire"
)

// clusterServices adds what only a leader with a registry answers. An RPC goes on when its caller is gone.
func (n *node) clusterServices(s wire.Services) {
	c := n.cluster
	s.Add(wire.MethodAdd, c.answerAdd)
	s.Add(wire.MethodActivate, c.answerActivate)
	s.Add(wire.MethodDelete, c.answerDelete)
	s.Add(wire.MethodList, c.answerList)
	s.Add(wire.MethodHeartbeat, c.answerHeartbeat)
	s.Add(wire.MethodActors, func(context.Context, []byte) ([]byte, error) {
		return wire.EncodeActors(c.barrier.listActors()), nil
	})
	s.Add(wire.MethodRecover, c.answerRecover)
	s.Add(wire.MethodCreate, c.answerCreate)
	s.Add(wire.MethodDrop, c.answerDrop)
	s.Add(wire.MethodReplace, c.answerReplace)
	s.Add(wire.MethodCancel, c.answerCancel)
	s.Add(wire.MethodVersion, func(context.Context, []byte) ([]byte, error) {
		return wire.Bytes(nil, 2, c.hummock.current().Encode()), nil
	})
}

// subscription is NotificationService.Subscribe as far as it touches the metadata: a compute node pins a version and is
// told of all later ones.
func (c *cluster) subscription() *grpc.ServiceDesc {
	handler := func(_ any, stream grpc.ServerStream) error {
		var in []byte
		if err := stream.RecvMsg(&in); err != nil {
			return err
		}
		id, err := wire.Number(in, 3)
		if err != nil {
			return badRequest(err)
		}
		message, pushed, err := c.hummock.subscribe(uint32(id))
		if err != nil {
			return err
		}
		defer c.hummock.unsubscribe(pushed)
		for {
			if err := stream.SendMsg(&message); err != nil {
				return err
			}
			select {
			case message = <-pushed:
			case <-stream.Context().Done():
				return nil
			}
		}
	}
	return &grpc.ServiceDesc{
		ServiceName: "meta.NotificationService", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Subscribe", Handler: handler, ServerStreams: true}},
	}
}

func badRequest(err error) error { return status.Errorf(codes.InvalidArgument, "request: %v", err) }

func (c *cluster) answerAdd(_ context.Context, in []byte) ([]byte, error) {
	r, err := wire.DecodeAddRequest(in)
	switch {
	case err != nil:
		return nil, badRequest(err)
	case typeNames[r.Type] == "":
		return nil, status.Errorf(codes.InvalidArgument, "Invalid parameter: worker type %d", r.Type)
	case r.Property == nil:
		return nil, status.Error(codes.InvalidArgument, "Invalid parameter: worker node property is not provided")
	case r.Resource.Version != "" && r.Resource.Version != wire.Version:
		return nil, status.Errorf(codes.InvalidArgument, "Invalid parameter: worker of version %s, meta of %s",
			r.Resource.Version, wire.Version)
	}
	id, err := c.add(r)
	if err != nil {
		return nil, err
	}
	return wire.Bytes(wire.Varint(nil, 2, uint64(id)), 4, c.id), nil
}

func (c *cluster) answerActivate(ctx context.Context, in []byte) ([]byte, error) {
	r, err := wire.DecodeHostRequest(in)
	if err != nil {
		return nil, badRequest(err)
	}
	if _, err := net.DefaultResolver.LookupHost(ctx, r.Host.Host); err != nil {
		return nil, status.Errorf(codes.Internal, "failed to resolve %s: %v", r.Host, err)
	}
	return nil, c.activate(r.NodeID)
}

func (c *cluster) answerDelete(_ context.Context, in []byte) ([]byte, error) {
	r, err := wire.DecodeHostRequest(in)
	if err != nil {
		return nil, badRequest(err)
	}
	_, err = c.remove(r.Host, "rpc")
	return nil, err
}

func (c *cluster) answerHeartbeat(_ context.Context, in []byte) ([]byte, error) {
	id, err := wire.Number(in, 1)
	if err != nil {
		return nil, badRequest(err)
	}
	if c.heartbeat(uint32(id)) {
		return nil, nil
	}
	message := status.Convert(invalidWorker(uint32(id))).Message()
	return wire.Bytes(nil, 1, wire.Bytes(wire.Varint(nil, 1, wire.StatusUnknownWorker), 2, message)), nil
}

// answerList: without a type the meta itself is in the list, with id 0.
func (c *cluster) answerList(_ context.Context, in []byte) ([]byte, error) {
	condition, workerType, starting := "true", uint64(0), false
	err := wire.EachField(in, func(field protowire.Number, _ []byte, number uint64) error {
		switch field {
		case 1:
			workerType = number
		case 2:
			starting = number != 0
		}
		return nil
	})
	if err != nil {
		return nil, badRequest(err)
	}
	var out []byte
	if workerType == 0 {
		host, _ := wire.ParseHost(c.node.opt.advertise) // absent if it is no host:port, as in the original
		meta := wire.Worker{Type: wire.TypeMeta, State: wire.StateRunning, Host: host, TransactionID: -1, StartedAt: c.started}
		out = wire.Bytes(out, 2, meta.Encode())
	} else {
		if typeNames[uint32(workerType)] == "" {
			return nil, status.Errorf(codes.InvalidArgument, "Invalid parameter: worker type %d", workerType)
		}
		condition = "w.worker_type = '" + typeNames[uint32(workerType)] + "'"
	}
	if !starting {
		condition += " AND w.status = 'RUNNING'"
	}
	workers, err := c.list(condition)
	if err != nil {
		return nil, sqlError(err)
	}
	for _, w := range workers {
		out = wire.Bytes(out, 2, w.Encode())
	}
	return out, nil
}

// answerRecover returns at the end of the recovery, however long that takes; a caller that leaves stops nothing.
func (c *cluster) answerRecover(ctx context.Context, _ []byte) ([]byte, error) {
	done := make(chan struct{})
	c.barrier.requests <- done
	select {
	case <-done:
		return nil, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
