// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// serveControl answers one line for each line on a unix socket: `ok …` or `error …`.
func serveControl(ctx context.Context, p *Proxy, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go serveLines(p, c)
		}
	}()
	return nil
}

func serveLines(p *Proxy, c net.Conn) {
	defer func() { _ = c.Close() }()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		reply, err := p.Command(lines.Text())
		if err != nil {
			reply = "error " + err.Error()
		} else {
			reply = strings.TrimSpace("ok " + reply)
		}
		if _, err := fmt.Fprintln(c, reply); err != nil {
			return
		}
	}
}

// Command runs one control line and returns what follows "ok".
func (p *Proxy) Command(line string) (string, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch verb {
	case "mode":
		m, err := parseMode(rest)
		if err != nil {
			return "", err
		}
		return rest, p.setMode(m)
	case "latency":
		ms, err := strconv.Atoi(rest)
		if err != nil || ms < 0 {
			return "", fmt.Errorf("latency %q: give milliseconds one way, 0 or more", rest)
		}
		p.setLatency(time.Duration(ms) * time.Millisecond)
		return "", nil
	case "loss":
		percent, err := strconv.ParseFloat(rest, 64)
		if err != nil || percent < 0 || percent >= 100 {
			return "", fmt.Errorf("loss %q: give percent, 0 to below 100", rest)
		}
		p.setLoss(percent / 100)
		return "", nil
	case "cut-after", "cut-before-query", "cut-before-answer":
		return "", p.setTrap(verb, rest)
	case "stats":
		return p.stats(), nil
	}
	return "", fmt.Errorf("unknown command %q: use mode, latency, loss, cut-after, cut-before-query, cut-before-answer, stats", verb)
}
