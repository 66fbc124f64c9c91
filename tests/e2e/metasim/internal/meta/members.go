// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"metasim/internal/wire"
)

const membersUsage = `usage: metasim members HOST:PORT
  Asks a meta who is a member and who leads, as the RisingWave operator's labeler does (time-out 2 s).
  Prints JSON [{"id": HOST:PORT, "leader": BOOL}...]; exit 1 without an answer.`

// MembersMain runs `metasim members`.
func MembersMain(args []string) int {
	if len(args) != 1 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintln(os.Stderr, membersUsage)
		return 2
	}
	found, err := AskMembers(args[0])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(found)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "metasim members:", err)
		return 1
	}
	return 0
}

// AskMembers asks a meta at HOST:PORT who is a member and who leads.
func AskMembers(address string) ([]wire.Member, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var in, out []byte
	if err := conn.Invoke(ctx, wire.MethodMembers, &in, &out); err != nil {
		return nil, err
	}
	return wire.DecodeMembers(out)
}
