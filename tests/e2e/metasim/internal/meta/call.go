// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"metasim/internal/wire"
)

const callUsage = `usage: metasim call [--timeout 30s] ADDRESS VERB
  One RPC to the meta or the compute node at ADDRESS (host:port), as risectl, a frontend or a compute node makes it.
  To a meta:
    list | actors | status | tables | recover | register WORKER | delete WORKER     WORKER is host:port
    create NAME [ACTORS [background]] | drop JOB | cancel JOB | alter JOB           JOB is the id that create printed
  To a compute node:
    stats | trace | update FRAGMENT | init
  Prints JSON: list [{"worker", "host", "state"}...], actors [{"actor", "fragment", "worker"}...], status {"status"},
  tables [...], register {"worker"}, create {"job", "fragments", "tables"}, cancel [...], stats {FRAGMENT: actors...},
  trace [text...], update {"actors"}, else {}.
  Exit 1 without a good answer, which is explained on stderr by gRPC's code and message.`

// errUsage is what the caller has to put right in his arguments.
var errUsage = errors.New(callUsage)

// CallMain runs `metasim call`.
func CallMain(args []string) int {
	fs := flag.NewFlagSet("metasim call", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintln(os.Stderr, callUsage) }
	timeout := fs.Duration("timeout", 30*time.Second, "for the answer")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	answer, err := call(*timeout, fs.Args())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		return 2
	case err != nil:
		fmt.Fprintf(os.Stderr, "metasim call: %v: %s\n", status.Code(err), status.Convert(err).Message())
		return 1
	}
	return 0
}

// request is one call: what is sent, and what is printed of the answer.
type request struct {
	method string
	in     []byte
	show   func(out []byte) (any, error)
}

func nothing([]byte) (any, error) { return struct{}{}, nil }

// verbs without an argument.
var verbs = map[string]request{
	"list":    {wire.MethodList, wire.Varint(wire.Varint(nil, 1, wire.TypeCompute), 2, 1), showNodes},
	"actors":  {wire.MethodActors, nil, showActors},
	"status":  {wire.MethodStatus, nil, showNumber("status", 1)},
	"tables":  {wire.MethodVersion, nil, showTables},
	"recover": {wire.MethodRecover, nil, nothing},
	"stats":   {wire.MethodStats, nil, func(out []byte) (any, error) { return wire.DecodeStats(out) }},
	"trace":   {wire.MethodTrace, nil, func(out []byte) (any, error) { return wire.DecodeTraces(out) }},
	"init":    {wire.MethodControl, wire.Control{Kind: wire.RequestInit}.Encode(), nothing},
}

// newRequest reads a verb and its arguments.
func newRequest(words []string) (request, error) {
	if r, found := verbs[words[0]]; found && len(words) == 1 {
		return r, nil
	}
	switch {
	case words[0] == "create" && len(words) >= 2:
		return newCreate(words[1:])
	case len(words) != 2:
		return request{}, errUsage
	case words[0] == "register" || words[0] == "delete":
		return newWorkerRequest(words[0], words[1])
	}
	id, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil {
		return request{}, fmt.Errorf("%s %q: give a number\n%w", words[0], words[1], errUsage)
	}
	number := wire.Varint(nil, 1, id)
	switch words[0] {
	case "drop":
		return request{wire.MethodDrop, number, nothing}, nil
	case "alter":
		return request{wire.MethodReplace, number, nothing}, nil
	case "cancel":
		return request{wire.MethodCancel, wire.EncodeCancelRequest(uint32(id)), showCanceled}, nil
	case "update":
		return request{wire.MethodUpdate, number, showNumber("actors", 1)}, nil
	}
	return request{}, errUsage
}

func newWorkerRequest(verb, address string) (request, error) {
	host, err := wire.ParseHost(address)
	if err != nil {
		return request{}, fmt.Errorf("%s %q: give host:port: %v\n%w", verb, address, err, errUsage)
	}
	if verb == "delete" {
		return request{wire.MethodDelete, wire.HostRequest{Host: host}.Encode(), nothing}, nil
	}
	add := wire.AddRequest{
		Type: wire.TypeCompute, Host: host, Property: &wire.Property{IsStreaming: true, IsServing: true, Parallelism: 2},
		Resource: wire.Resource{Version: wire.Version},
	}
	return request{wire.MethodAdd, add.Encode(), showNumber("worker", 2)}, nil
}

func newCreate(words []string) (request, error) {
	r := wire.CreateRequest{Name: words[0], Actors: 1, IsBackground: len(words) == 3 && words[2] == "background"}
	if len(words) > 1 {
		n, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil || n == 0 {
			return request{}, fmt.Errorf("create %s %q: give a number of actors\n%w", words[0], words[1], errUsage)
		}
		r.Actors = uint32(n)
	}
	if len(words) > 3 || len(words) == 3 && !r.IsBackground {
		return request{}, errUsage
	}
	return request{wire.MethodCreate, r.Encode(), func(out []byte) (any, error) { return wire.DecodeCreateResponse(out) }}, nil
}

func showNodes(out []byte) (any, error) {
	type node struct {
		Worker uint32 `json:"worker"`
		Host   string `json:"host"`
		State  uint32 `json:"state"`
	}
	found, err := wire.DecodeNodes(out)
	nodes := []node{}
	for _, w := range found {
		nodes = append(nodes, node{w.ID, w.Host.String(), w.State})
	}
	return nodes, err
}

func showActors(out []byte) (any, error) {
	type actor struct {
		Actor    uint32 `json:"actor"`
		Fragment uint32 `json:"fragment"`
		Worker   uint32 `json:"worker"`
	}
	found, err := wire.DecodeActors(out)
	actors := []actor{}
	for _, a := range found {
		actors = append(actors, actor{a.ID, a.Fragment, a.Worker})
	}
	return actors, err
}

// showNumber prints the varint of one field under a name.
func showNumber(name string, field protowire.Number) func([]byte) (any, error) {
	return func(out []byte) (any, error) {
		v, err := wire.Number(out, field)
		return map[string]uint64{name: v}, err
	}
}

func showTables(out []byte) (any, error) {
	ids := []uint32{}
	err := wire.EachField(out, func(field protowire.Number, body []byte, _ uint64) error {
		v, err := wire.DecodeVersion(body)
		if field == 2 {
			ids = append(ids, sortedIDs(v.Tables)...)
		}
		return err
	})
	return ids, err
}

func showCanceled(out []byte) (any, error) {
	ids, err := wire.DecodeCanceled(out)
	return append([]uint32{}, ids...), err
}

// call makes the one RPC that the words ask for.
func call(timeout time.Duration, words []string) (any, error) {
	if len(words) < 2 {
		return nil, errUsage
	}
	r, err := newRequest(words[1:])
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+words[0],
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var out []byte
	if r.method == wire.MethodControl {
		err = firstAnswer(ctx, conn, r, &out)
	} else {
		err = conn.Invoke(ctx, r.method, &r.in, &out)
	}
	if err != nil {
		return nil, err
	}
	return r.show(out)
}

// firstAnswer opens a stream, sends one message and waits for one.
func firstAnswer(ctx context.Context, conn *grpc.ClientConn, r request, out *[]byte) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, r.method)
	if err == nil {
		err = stream.SendMsg(&r.in)
	}
	if err == nil {
		err = stream.RecvMsg(out)
	}
	return err
}
