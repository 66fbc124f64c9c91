// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Worker types and states, as common.proto numbers them.
const (
	TypeFrontend  = 1
	TypeCompute   = 2
	TypeRiseCtl   = 3
	TypeCompactor = 4
	TypeMeta      = 5

	StateStarting = 1
	StateRunning  = 2

	// Version is the release that all parts of the stand-in claim to be.
	Version = "metasim"

	// StatusUnknownWorker is common.Status.code of a heartbeat by an id that memory does not know.
	StatusUnknownWorker = 2
)

// Host is common.HostAddress.
type Host struct {
	Host string
	Port int32
}

// ParseHost splits host:port.
func ParseHost(address string) (Host, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Host{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return Host{host, int32(n)}, err
}

func (h Host) String() string { return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) }

// HostBytes is the message of an address.
func HostBytes(h Host) []byte {
	var m []byte
	if h.Host != "" {
		m = Bytes(m, 1, h.Host)
	}
	return optional(m, 2, uint64(h.Port))
}

func (h Host) append(b []byte, field protowire.Number) []byte { return Bytes(b, field, HostBytes(h)) }

func decodeHost(b []byte) (h Host, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			h.Host = string(body)
		case 2:
			h.Port = int32(number)
		}
		return nil
	})
	return h, err
}

// HostRequest is a request with a host in field 1 and an id in field 2: DeleteWorkerNode, ActivateWorkerNode.
type HostRequest struct {
	Host   Host
	NodeID uint32
}

// Encode writes the message.
func (r HostRequest) Encode() []byte { return optional(r.Host.append(nil, 1), 2, uint64(r.NodeID)) }

// DecodeHostRequest is its reverse.
func DecodeHostRequest(b []byte) (r HostRequest, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) (err error) {
		switch field {
		case 1:
			r.Host, err = decodeHost(body)
		case 2:
			r.NodeID = uint32(number)
		}
		return err
	})
	return r, err
}

// Property is common.WorkerNode.Property.
type Property struct {
	IsStreaming, IsServing, IsUnschedulable, IsIcebergCompactor bool
	InternalHost, ResourceGroup                                 string
	Parallelism                                                 uint32
}

func (p Property) encode() []byte {
	b := flag(flag(flag(nil, 1, p.IsStreaming), 2, p.IsServing), 3, p.IsUnschedulable)
	if p.InternalHost != "" {
		b = Bytes(b, 4, p.InternalHost)
	}
	b = optional(b, 6, uint64(p.Parallelism))
	if p.ResourceGroup != "" {
		b = Bytes(b, 7, p.ResourceGroup)
	}
	return flag(b, 8, p.IsIcebergCompactor)
}

func decodeProperty(b []byte) (p Property, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			p.IsStreaming = number != 0
		case 2:
			p.IsServing = number != 0
		case 3:
			p.IsUnschedulable = number != 0
		case 4:
			p.InternalHost = string(body)
		case 6:
			p.Parallelism = uint32(number)
		case 7:
			p.ResourceGroup = string(body)
		case 8:
			p.IsIcebergCompactor = number != 0
		}
		return nil
	})
	return p, err
}

// Resource is common.WorkerNode.Resource.
type Resource struct {
	Version       string
	Memory, Cores uint64
	Hostname      string
}

// Encode writes the message, also as HEAD's column worker_property.resource holds it.
func (r Resource) Encode() []byte {
	var b []byte
	if r.Version != "" {
		b = Bytes(b, 1, r.Version)
	}
	b = optional(optional(b, 2, r.Memory), 3, r.Cores)
	if r.Hostname != "" {
		b = Bytes(b, 4, r.Hostname)
	}
	return b
}

// DecodeResource is its reverse.
func DecodeResource(b []byte) (r Resource, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			r.Version = string(body)
		case 2:
			r.Memory = number
		case 3:
			r.Cores = number
		case 4:
			r.Hostname = string(body)
		}
		return nil
	})
	return r, err
}

// AddRequest is meta.AddWorkerNodeRequest.
type AddRequest struct {
	Type     uint32
	Host     Host
	Property *Property
	Resource Resource
}

// Encode writes the message.
func (r AddRequest) Encode() []byte {
	b := r.Host.append(Varint(nil, 1, uint64(r.Type)), 2)
	b = Bytes(b, 5, r.Resource.Encode())
	if r.Property != nil {
		b = Bytes(b, 6, r.Property.encode())
	}
	return b
}

// DecodeAddRequest is its reverse.
func DecodeAddRequest(b []byte) (r AddRequest, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) (err error) {
		switch field {
		case 1:
			r.Type = uint32(number)
		case 2:
			r.Host, err = decodeHost(body)
		case 5:
			r.Resource, err = DecodeResource(body)
		case 6:
			var p Property
			p, err = decodeProperty(body)
			r.Property = &p
		}
		return err
	})
	return r, err
}

// Worker is common.WorkerNode. TransactionID < 0 and StartedAt 0 mean that the field is absent.
type Worker struct {
	ID, Type, State uint32
	Host            Host
	Property        *Property
	TransactionID   int64
	Resource        *Resource
	StartedAt       uint64 // Unix time, seconds
}

// Encode writes the message.
func (w Worker) Encode() []byte {
	b := optional(optional(nil, 1, uint64(w.ID)), 2, uint64(w.Type))
	b = optional(w.Host.append(b, 3), 4, uint64(w.State))
	if w.Property != nil {
		b = Bytes(b, 6, w.Property.encode())
	}
	if w.TransactionID >= 0 {
		b = Varint(b, 7, uint64(w.TransactionID))
	}
	if w.Resource != nil {
		b = Bytes(b, 8, w.Resource.Encode())
	}
	return optional(b, 9, w.StartedAt)
}

// DecodeWorker is its reverse.
func DecodeWorker(b []byte) (w Worker, err error) {
	w.TransactionID = -1
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) (err error) {
		switch field {
		case 1:
			w.ID = uint32(number)
		case 2:
			w.Type = uint32(number)
		case 3:
			w.Host, err = decodeHost(body)
		case 4:
			w.State = uint32(number)
		case 6:
			var p Property
			p, err = decodeProperty(body)
			w.Property = &p
		case 7:
			w.TransactionID = int64(number)
		case 8:
			var r Resource
			r, err = DecodeResource(body)
			w.Resource = &r
		case 9:
			w.StartedAt = number
		}
		return err
	})
	return w, err
}

// DecodeNodes reads meta.ListAllNodesResponse.
func DecodeNodes(b []byte) (nodes []Worker, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, _ uint64) error {
		if field != 2 {
			return nil
		}
		w, err := DecodeWorker(body)
		nodes = append(nodes, w)
		return err
	})
	return nodes, err
}

// Number reads the varint of one field; 0 if it is absent.
func Number(b []byte, wanted protowire.Number) (v uint64, err error) {
	err = EachField(b, func(field protowire.Number, _ []byte, number uint64) error {
		if field == wanted {
			v = number
		}
		return nil
	})
	return v, err
}

// Status reads common.Status of a response that has it in field 1.
func Status(b []byte) (code uint64, message string, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		return EachField(body, func(field protowire.Number, body []byte, number uint64) error {
			if field == 1 {
				code = number
			} else {
				message = string(body)
			}
			return nil
		})
	})
	return code, message, err
}
