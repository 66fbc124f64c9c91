// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"metasim/internal/meta"
	"metasim/internal/wire"
)

// call makes one RPC with an empty request on a connection of its own.
func call(t *testing.T, port int, method string) ([]byte, codes.Code) {
	t.Helper()
	conn, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var in, out []byte
	err = conn.Invoke(ctx, method, &in, &out, grpc.ForceCodecV2(wire.Codec{}))
	return out, status.Code(err)
}

const (
	methodMembers  = "/meta.MetaMemberService/Members"
	methodHealth   = "/health.Health/Check"
	methodRecovery = "/meta.ClusterService/GetClusterRecoveryStatus"
)

func TestServicesOfFollowerAndLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--recovery", "2s"}})
	l := c.start()
	f := c.nodes[1]
	for _, n := range c.nodes {
		if out, code := call(t, n.service, methodHealth); code != codes.OK || string(out) != "\x08\x01" {
			t.Errorf("node %d health: %q %v", n.index, out, code)
		}
		if _, code := call(t, n.service, "/ddl_service.DdlService/DropTable"); code != codes.Unimplemented {
			t.Errorf("node %d unknown service: %v", n.index, code)
		}
	}
	if _, code := call(t, f.service, methodRecovery); code != codes.Unimplemented {
		t.Errorf("recovery status of a follower: %v, want UNIMPLEMENTED", code)
	}
	if listens(f.metrics) || listens(f.dashboard) {
		t.Error("a follower must not open leader ports")
	}
	seen := map[string]bool{}
	c.await(patience, "recovery status RUNNING", func() bool {
		out, code := call(t, l.service, methodRecovery)
		seen[string(out)] = code == codes.OK
		return string(out) == "\x08\x03"
	})
	if !seen["\x08\x01"] && !seen["\x08\x02"] {
		t.Errorf("statuses %v, want 1 or 2 before 3", seen)
	}
	out, code := call(t, f.service, methodMembers)
	if code != codes.OK || len(out) == 0 {
		t.Errorf("members: %q %v", out, code)
	}
	found, err := meta.AskMembers(fmt.Sprintf("127.0.0.1:%d", f.service))
	if err != nil || len(found) != 2 || found[0].Leader == found[1].Leader {
		t.Errorf("metasim members: %v %v, want two of which one leads", found, err)
	}
	for _, url := range []string{fmt.Sprintf("http://127.0.0.1:%d/any", l.metrics), fmt.Sprintf("http://127.0.0.1:%d/api/version", l.dashboard)} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	c.exec(`INSERT INTO election_member VALUES ('__meta_election_', 'no-port', now())`)
	if _, code := call(t, f.service, methodMembers); code != codes.Internal {
		t.Errorf("members with a bad id: %v, want INTERNAL for the whole list", code)
	}
}

// Init is deaf: to TERM, and to a lease that another took.
func TestSlowPromotion(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{nodes: 2, flags: []string{"--init", "4s"}})
	l, f := c.nodes[0], c.nodes[1]
	l.start()
	begin := l.awaitEvent("init_begin", 0)
	if listens(l.service) || listens(l.metrics) {
		t.Error("nothing listens between follower and leader")
	}
	f.start()
	f.awaitEvent("row", 0)
	c.exec(`UPDATE election_leader SET id = $1, last_heartbeat = now()`, f.id)
	l.awaitEvent("lost", 0)
	if l.writesOK(begin.Boot) == 0 || !l.alive() {
		t.Error("a promoting meta works on metadata before its ports open")
	}
	up := l.awaitEvent("leader_up", 0)
	if took := time.Duration(up.Boot - begin.Boot); took < 4*time.Second {
		t.Errorf("init took %v", took)
	}
	l.mustExit(0, patience)
}
