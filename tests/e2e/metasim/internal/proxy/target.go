// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// targetRefuses says whether nobody listens at the target. On loopback the kernel's tables answer:
// a probing connect would disturb the server that is shutting down. Elsewhere it takes one.
func (p *Proxy) targetRefuses() bool {
	addr, err := net.ResolveTCPAddr("tcp", p.target)
	if err != nil {
		return false
	}
	if addr.IP.IsLoopback() {
		listens, err := listensLocally(addr.Port)
		if err == nil {
			return !listens
		}
	}
	c, err := net.DialTimeout("tcp", p.target, time.Second)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// listensLocally looks for a listening socket on the port, whatever its address.
func listensLocally(port int) (bool, error) {
	suffix := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		for _, l := range strings.Split(string(b), "\n") {
			f := strings.Fields(l)
			const listen = "0A"
			if len(f) > 3 && f[3] == listen && strings.HasSuffix(f[1], suffix) {
				return true, nil
			}
		}
	}
	return false, nil
}
