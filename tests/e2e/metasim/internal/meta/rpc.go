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
	"google.golang.org/grpc/status"

	"metasim/internal/wire"
)

// followerServices is what a follower serves; everything else is UNIMPLEMENTED.
func (n *node) followerServices() wire.Services {
	s := wire.Services{}
	s.Add(wire.MethodMembers, n.answerMembers)
	s.Add("/health.Health/Check", func(context.Context, []byte) ([]byte, error) {
		return wire.Varint(nil, 1, 1), nil // SERVING, always
	})
	return s
}

func (n *node) followerServer() *grpc.Server {
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}))
	n.followerServices().Register(server)
	return server
}

// leaderServer adds the leader's answers that others read.
func (n *node) leaderServer(up time.Time) *grpc.Server {
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}))
	s := n.followerServices()
	s.Add(wire.MethodStatus, func(context.Context, []byte) ([]byte, error) {
		return wire.Varint(nil, 1, n.recoveryStatus(time.Since(up))), nil
	})
	if n.cluster != nil {
		n.clusterServices(s)
		server.RegisterService(n.cluster.subscription(), struct{}{})
	}
	s.Register(server)
	return server
}

// recoveryStatus is the barrier worker's; without one it is STARTING (1), then RECOVERING (2) during the bootstrap recovery, then RUNNING (3).
func (n *node) recoveryStatus(sinceUp time.Duration) uint64 {
	if n.cluster != nil {
		return n.cluster.barrier.status.Load()
	}
	switch {
	case sinceUp >= n.opt.recovery:
		return 3
	case sinceUp >= n.opt.recovery/2:
		return 2
	}
	return 1
}

func (n *node) answerMembers(ctx context.Context, _ []byte) ([]byte, error) {
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
		out = wire.Bytes(out, 1, member)
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
	return wire.Member{Leader: leader}.Encode(wire.Host{Host: u.Hostname(), Port: int32(port)}), nil
}
