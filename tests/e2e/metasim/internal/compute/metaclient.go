// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"metasim/internal/wire"
)

const (
	connectTimeout = 5 * time.Second
	keepaliveTime  = 60 * time.Second // and as long for the answer: a frozen meta is left after two minutes
	refreshPeriod  = 5 * time.Second  // only with a list of addresses
)

// metaClient talks to the meta that led when it last asked. With a load-balanced address it asks again only
// after an error: it stays with a meta that answers, whoever leads.
type metaClient struct {
	opt    *options
	mu     sync.Mutex
	core   *grpc.ClientConn
	leader string

	refreshMu sync.Mutex // over member and metas
	member    *grpc.ClientConn
	metas     []string
}

// newMetaClient connects to the first address that answers and looks for the leader from there.
func newMetaClient(ctx context.Context, o *options) (*metaClient, error) {
	m := &metaClient{opt: o, metas: slices.Clone(o.metas)}
	err := errors.New("no address")
	for _, address := range o.metas {
		if m.core, err = dial(ctx, address); err == nil {
			m.leader = address
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("Failed to connect to meta server: %w", err)
	}
	if o.isLoadBalance {
		m.member = m.core
	}
	if err := m.refresh(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *metaClient) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.core.Close()
	if m.member != nil {
		_ = m.member.Close()
	}
}

// dial waits for the connection: after it a broken one is reopened by itself.
func dial(ctx context.Context, address string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTime}))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if s == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, s) {
			_ = conn.Close()
			return nil, fmt.Errorf("connect to %s failed", address)
		}
	}
	return conn, nil
}

// call makes one RPC. After an error that may mean a wrong leader it looks for another one, but the error stays.
func (m *metaClient) call(ctx context.Context, method string, in []byte) ([]byte, error) {
	var out []byte
	err := m.conn().Invoke(ctx, method, &in, &out)
	if err == nil {
		return out, nil
	}
	switch status.Code(err) {
	case codes.Unknown, codes.Unimplemented, codes.Unavailable:
		if ctx.Err() == nil {
			m.tryRefresh(ctx)
		}
	}
	return nil, err
}

func (m *metaClient) conn() *grpc.ClientConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core
}

func (m *metaClient) leaderAddress() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leader
}

func (m *metaClient) tryRefresh(ctx context.Context) {
	if !m.refreshMu.TryLock() {
		return // one is under way
	}
	m.refreshMu.Unlock()
	if err := m.refresh(ctx); err != nil {
		log.Printf("WARN risingwave_rpc_client::meta_client: refresh meta member client failed error=%v", err)
	}
}

// refresh asks for the members and goes over to the leader among them.
func (m *metaClient) refresh(ctx context.Context) error {
	m.refreshMu.Lock()
	defer m.refreshMu.Unlock()
	members, err := m.askMembers(ctx)
	if err != nil {
		return err
	}
	for _, member := range members {
		if !slices.Contains(m.metas, member.ID) && !m.opt.isLoadBalance {
			m.metas = append(m.metas, member.ID)
		}
	}
	for _, member := range members {
		if !member.Leader || member.ID == m.leaderAddress() {
			continue
		}
		log.Printf("INFO risingwave_rpc_client::meta_client: new meta leader %s discovered", member.ID)
		conn, err := dial(ctx, member.ID)
		if err != nil {
			return err
		}
		m.mu.Lock()
		if m.core != m.member {
			_ = m.core.Close()
		}
		m.core, m.leader = conn, member.ID
		m.mu.Unlock()
		break
	}
	return nil
}

func (m *metaClient) askMembers(ctx context.Context) ([]wire.Member, error) {
	if m.opt.isLoadBalance {
		return members(ctx, m.member)
	}
	failed := errors.New("could not refresh members")
	for _, address := range m.metas {
		conn, err := dial(ctx, address)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		found, err := members(ctx, conn)
		_ = conn.Close()
		if err == nil {
			return found, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

func members(ctx context.Context, conn *grpc.ClientConn) ([]wire.Member, error) {
	var in, out []byte
	if err := conn.Invoke(ctx, wire.MethodMembers, &in, &out); err != nil {
		return nil, err
	}
	return wire.DecodeMembers(out)
}

// watchMembers is the periodic refresh that only a list of addresses has.
func (m *metaClient) watchMembers(ctx context.Context) {
	if m.opt.isLoadBalance {
		return
	}
	for range time.Tick(refreshPeriod) {
		m.tryRefresh(ctx)
	}
}

// retry runs try until it succeeds, or fails for good, or the sum of the delays is over the bound.
func retry(bound time.Duration, isFinal func(error) bool, try func() error) error {
	const first, limit = 50 * time.Millisecond, 5 * time.Second
	sum := time.Duration(0)
	for step := first; ; step = min(step*50, limit) {
		err := try()
		if err == nil || isFinal(err) || sum >= bound {
			return err
		}
		delay := time.Duration(rand.Float64() * float64(step))
		sum += delay
		time.Sleep(delay)
	}
}
