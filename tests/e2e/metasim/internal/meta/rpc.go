// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// RawCodec passes message bytes through: the few messages are written by hand with protowire.
type RawCodec struct{}

var _ encoding.CodecV2 = RawCodec{}

func (RawCodec) Name() string { return "proto" }

func (RawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw codec: unexpected %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (RawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw codec: unexpected %T", v)
	}
	*b = data.Materialize()
	return nil
}

type answer func(ctx context.Context) ([]byte, error)

// unary registers service/method; requests carry nothing that these answers depend on.
func unary(s *grpc.Server, service, method string, fn answer) {
	handler := func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := dec(&in); err != nil {
			return nil, err
		}
		out, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: method, Handler: handler}},
	}, struct{}{})
}

// followerServer serves what a follower serves; everything else is UNIMPLEMENTED.
func (n *node) followerServer() *grpc.Server {
	s := grpc.NewServer(grpc.ForceServerCodecV2(RawCodec{}))
	unary(s, "meta.MetaMemberService", "Members", n.answerMembers)
	unary(s, "health.Health", "Check", func(context.Context) ([]byte, error) {
		return appendVarint(nil, 1, 1), nil // SERVING, always
	})
	return s
}

// leaderServer adds the leader's answers that others read.
func (n *node) leaderServer(up time.Time) *grpc.Server {
	s := n.followerServer()
	unary(s, "meta.ClusterService", "GetClusterRecoveryStatus", func(context.Context) ([]byte, error) {
		return appendVarint(nil, 1, n.recoveryStatus(time.Since(up))), nil
	})
	return s
}

// recoveryStatus is STARTING (1), then RECOVERING (2) during the bootstrap recovery, then RUNNING (3).
func (n *node) recoveryStatus(sinceUp time.Duration) uint64 {
	switch {
	case sinceUp >= n.opt.recovery:
		return 3
	case sinceUp >= n.opt.recovery/2:
		return 2
	}
	return 1
}

func (n *node) answerMembers(ctx context.Context) ([]byte, error) {
	ids, leader, err := n.election.driver.members(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "%v", err)
	}
	var out []byte
	for _, id := range ids {
		member, err := encodeMember(id, equalFoldASCII(id, leader))
		if err != nil { // one bad id fails the whole list, as in the original
			return nil, status.Errorf(codes.Internal, "%v", err)
		}
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, member)
	}
	return out, nil
}

// encodeMember writes MetaMember{HostAddress address = 1; bool is_leader = 2}.
func encodeMember(id string, leader bool) ([]byte, error) {
	u, err := url.Parse("http://" + id)
	if err != nil {
		return nil, fmt.Errorf("invalid address %q: %w", id, err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		return nil, fmt.Errorf("invalid address %q: no port", id)
	}
	var addr []byte
	addr = protowire.AppendTag(addr, 1, protowire.BytesType)
	addr = protowire.AppendString(addr, u.Hostname())
	addr = appendVarint(addr, 2, port)
	var out []byte
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	out = protowire.AppendBytes(out, addr)
	if leader {
		out = appendVarint(out, 2, 1)
	}
	return out, nil
}

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
