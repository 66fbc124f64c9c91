// SPDX-License-Identifier: Apache-2.0

package wire

import "google.golang.org/protobuf/encoding/protowire"

// Methods of gRPC.
const (
	MethodMembers   = "/meta.MetaMemberService/Members"
	MethodAdd       = "/meta.ClusterService/AddWorkerNode"
	MethodActivate  = "/meta.ClusterService/ActivateWorkerNode"
	MethodDelete    = "/meta.ClusterService/DeleteWorkerNode"
	MethodList      = "/meta.ClusterService/ListAllNodes"
	MethodStatus    = "/meta.ClusterService/GetClusterRecoveryStatus"
	MethodHeartbeat = "/meta.HeartbeatService/Heartbeat"
	MethodRecover   = "/meta.StreamManagerService/Recover"
	MethodActors    = "/meta.StreamManagerService/ListActorStates"
	MethodSubscribe = "/meta.NotificationService/Subscribe"
	MethodControl   = "/stream_service.StreamService/StreamingControlStream"
	MethodStats     = "/monitor_service.MonitorService/GetStreamingStats"
	MethodTrace     = "/monitor_service.MonitorService/StackTrace"
	MethodCreate    = "/ddl_service.DdlService/CreateMaterializedView"
	MethodDrop      = "/ddl_service.DdlService/DropMaterializedView"
	MethodReplace   = "/ddl_service.DdlService/ReplaceJobPlan"
	MethodCancel    = "/meta.StreamManagerService/CancelCreatingJobs"
	MethodVersion   = "/hummock.HummockManagerService/GetCurrentVersion"
	MethodUpdate    = "/metasim.Testing/Update"
)

// Kinds of messages on a control stream: the field of the oneof.
const (
	RequestInit   = 1
	RequestInject = 2
	RequestReset  = 5

	ResponseInit     = 1
	ResponseComplete = 2
	ResponseShutdown = 3
	ResponseReset    = 5
	ResponseFailure  = 6
)

// Control is one message of either direction. What its kind does not need is zero.
type Control struct {
	Kind   protowire.Number
	Epoch  uint64     // of Inject and Complete
	Number uint64     // of Reset: which request; of Complete: the worker's id
	Build  []NewActor // of Inject
	Stop   []uint32   // of Inject: the actors that end with this barrier
	Error  string     // of Failure
}

// NewActor is one to build.
type NewActor struct {
	ID, Fragment uint32
	Tables       []uint32 // its state
	Definition   string   // SQL of its job
}

func (a NewActor) encode() []byte {
	b := optional(optional(nil, 1, uint64(a.ID)), 2, uint64(a.Fragment))
	for _, t := range a.Tables {
		b = Varint(b, 3, uint64(t))
	}
	if a.Definition == "" {
		return b
	}
	return Bytes(b, 4, a.Definition)
}

func decodeNewActor(b []byte) (a NewActor, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			a.ID = uint32(number)
		case 2:
			a.Fragment = uint32(number)
		case 3:
			a.Tables = append(a.Tables, uint32(number))
		case 4:
			a.Definition = string(body)
		}
		return nil
	})
	return a, err
}

// Encode writes the message; an Init is exactly 0A 00.
func (c Control) Encode() []byte {
	m := optional(optional(nil, 1, c.Epoch), 2, c.Number)
	for _, a := range c.Build {
		m = Bytes(m, 3, a.encode())
	}
	for _, id := range c.Stop {
		m = Varint(m, 4, uint64(id))
	}
	if c.Error != "" {
		m = Bytes(m, 5, c.Error)
	}
	return Bytes(nil, c.Kind, m)
}

// DecodeControl is its reverse. What Init carries (the term) is not read: nobody orders by it.
func DecodeControl(b []byte) (c Control, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, _ uint64) error {
		c = Control{Kind: field}
		if field == RequestInit {
			return nil
		}
		return EachField(body, c.field)
	})
	return c, err
}

func (c *Control) field(field protowire.Number, body []byte, number uint64) error {
	switch field {
	case 1:
		c.Epoch = number
	case 2:
		c.Number = number
	case 3:
		a, err := decodeNewActor(body)
		c.Build = append(c.Build, a)
		return err
	case 4:
		c.Stop = append(c.Stop, uint32(number))
	case 5:
		c.Error = string(body)
	}
	return nil
}

// Actor is a state in meta.ListActorStatesResponse.
type Actor struct{ ID, Fragment, Worker uint32 }

// EncodeActors writes the response.
func EncodeActors(actors []Actor) (b []byte) {
	for _, a := range actors {
		m := Varint(Varint(nil, 1, uint64(a.ID)), 2, uint64(a.Fragment))
		b = Bytes(b, 1, Varint(m, 5, uint64(a.Worker)))
	}
	return b
}

// DecodeActors is its reverse.
func DecodeActors(b []byte) (actors []Actor, err error) {
	err = EachField(b, func(_ protowire.Number, body []byte, _ uint64) error {
		var a Actor
		err := EachField(body, func(field protowire.Number, _ []byte, number uint64) error {
			switch field {
			case 1:
				a.ID = uint32(number)
			case 2:
				a.Fragment = uint32(number)
			case 5:
				a.Worker = uint32(number)
			}
			return nil
		})
		actors = append(actors, a)
		return err
	})
	return actors, err
}

// Member is one line of meta.MembersResponse.
type Member struct {
	ID     string `json:"id"`
	Leader bool   `json:"leader"`
}

// Encode writes meta.MetaMember.
func (m Member) Encode(address Host) []byte { return flag(address.append(nil, 1), 2, m.Leader) }

// DecodeMembers reads the response.
func DecodeMembers(b []byte) ([]Member, error) {
	found := []Member{}
	err := EachField(b, func(_ protowire.Number, body []byte, _ uint64) error {
		var m Member
		err := EachField(body, func(field protowire.Number, body []byte, number uint64) error {
			if field == 2 {
				m.Leader = number != 0
				return nil
			}
			h, err := decodeHost(body)
			m.ID = h.String()
			return err
		})
		found = append(found, m)
		return err
	})
	return found, err
}
