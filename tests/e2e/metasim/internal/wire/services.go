// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"strings"

	"google.golang.org/grpc"
)

// Answer is one unary method.
type Answer func(ctx context.Context, request []byte) ([]byte, error)

// Services collects the unary methods of a server by service.
type Services map[string][]grpc.MethodDesc

// Register serves them.
func (s Services) Register(server *grpc.Server) {
	for name, methods := range s {
		server.RegisterService(&grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil), Methods: methods}, struct{}{})
	}
}

// Add adds a method by its full name.
func (s Services) Add(method string, fn Answer) {
	handler := func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var in []byte
		if err := dec(&in); err != nil {
			return nil, err
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return &out, nil
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	s[service] = append(s[service], grpc.MethodDesc{MethodName: name, Handler: handler})
}
