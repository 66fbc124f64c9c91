// SPDX-License-Identifier: Apache-2.0

// Package apiproxy puts TLS and HTTP/2, as Kubernetes' API server has them, before a server that has neither.
package apiproxy

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

// Main runs `metasim apiproxy` until it is killed. Each request is a line of its log: protocol, method, path.
func Main(args []string) int {
	fs := flag.NewFlagSet("metasim apiproxy", flag.ContinueOnError)
	listen := fs.String("listen", "", "host:port to listen on")
	target := fs.String("target", "", "URL of the server behind it")
	cert := fs.String("cert", "", "certificate, PEM")
	key := fs.String("key", "", "its key, PEM")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	to, err := url.Parse(*target)
	if err != nil || *listen == "" || *target == "" || *cert == "" || *key == "" || fs.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "metasim apiproxy: --listen, --target, --cert and --key are all needed, and nothing else")
		return 2
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1 // a watch's lines come when they come
	server := &http.Server{
		Addr: *listen,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			log.Printf("%s %s %s", r.Proto, r.Method, r.URL.Path)
			proxy.ServeHTTP(w, r)
		}),
	}
	fmt.Fprintln(os.Stderr, "metasim apiproxy:", server.ListenAndServeTLS(*cert, *key))
	return 1
}
