// SPDX-License-Identifier: Apache-2.0

// Package wire holds the few messages that metas and compute nodes exchange, written by hand with
// protowire. README.md says which field numbers are RisingWave's and which are ours.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Codec passes message bytes through.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

func (Codec) Name() string { return "proto" }

func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("raw codec: unexpected %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("raw codec: unexpected %T", v)
	}
	*b = data.Materialize()
	return nil
}

// EachField walks over fields; body is set for bytes, number for varints. Other types are skipped.
func EachField(message []byte, visit func(field protowire.Number, body []byte, number uint64) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var body []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type, protowire.Fixed64Type:
			n = protowire.ConsumeFieldValue(field, kind, message)
		default:
			return errors.New("message has a field of an unexpected type")
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind == protowire.Fixed32Type || kind == protowire.Fixed64Type {
			continue
		}
		if err := visit(field, body, number); err != nil {
			return err
		}
	}
	return nil
}

// Varint appends a field; proto3 leaves out zeros, the caller too where that matters.
func Varint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// Bytes appends a field of bytes, text or a message.
func Bytes[T []byte | string](b []byte, field protowire.Number, v T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), []byte(v))
}

// optional leaves out what proto3 leaves out.
func optional(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return Varint(b, field, v)
}

func flag(b []byte, field protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return Varint(b, field, 1)
}
