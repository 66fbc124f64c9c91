// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"log"
	"net"
)

// followerPhase serves as follower until the first win; false means that shutdown came first: the
// process then exits at once, without resigning and without waiting for anything.
func (n *node) followerPhase() bool {
	if won, _ := n.election.watch.borrow(); won {
		return true
	}
	log.Printf("INFO risingwave_meta_node::server: starting follower services")
	server := n.followerServer()
	lis := n.listen(n.opt.listen)
	go func() { _ = server.Serve(lis) }()
	n.jour.Line("ready")

	phantom := n.opt.phantom
	for {
		won, changed := n.election.watch.borrow()
		if won && phantom {
			// The waiting task is not scheduled before the pulse is over.
			phantom = false
			n.jour.Line("phantom")
			select {
			case <-changed:
			case <-n.shutdown.Done():
			}
			continue
		}
		if won {
			break
		}
		select {
		case <-n.shutdown.Done():
			return false
		case <-changed:
		}
	}
	log.Printf("INFO risingwave_meta_node::server: elected as leader, shutting down follower services")
	server.GracefulStop() // waits for RPCs under way: one that hangs holds up the promotion
	return true
}

// listen binds or panics, as the original does.
func (n *node) listen(addr string) net.Listener {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		n.panic("failed to bind %s: %v", addr, err)
	}
	return lis
}
