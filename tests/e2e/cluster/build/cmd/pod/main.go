// SPDX-License-Identifier: Apache-2.0

// What pods of the tests are made of, without a shell: the sandbox that holds a pod's namespaces, a
// server that says who it is, and a client.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `usage: pod pause | serve ADDRESS | get URL [TIMEOUT]
  pause   wait for TERM, and bury orphans as the first process of a shared PID namespace has to
  serve   answer each request with the name of the host
  get     print what a URL answers; exit 1 without an answer within TIMEOUT (default 2s)
`

func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(address string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return http.ListenAndServe(address, http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, host)
	}))
}

func get(url string, timeout time.Duration) error {
	client := http.Client{Timeout: timeout}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, answer.StatusCode)
	}
	return nil
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "pause":
		return pause()
	case len(arguments) == 2 && arguments[0] == "serve":
		return serve(arguments[1])
	case len(arguments) == 2 && arguments[0] == "get":
		return get(arguments[1], 2*time.Second)
	case len(arguments) == 3 && arguments[0] == "get":
		timeout, err := time.ParseDuration(arguments[2])
		if err != nil {
			return err
		}
		return get(arguments[1], timeout)
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
