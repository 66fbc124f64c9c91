// SPDX-License-Identifier: Apache-2.0

package wire

import "google.golang.org/protobuf/encoding/protowire"

// CreateRequest asks for a job; all of it is ours.
type CreateRequest struct {
	Name         string
	Actors       uint32 // of each fragment
	IsBackground bool
}

// Encode writes the message.
func (r CreateRequest) Encode() []byte {
	return flag(optional(Bytes(nil, 1, r.Name), 2, uint64(r.Actors)), 3, r.IsBackground)
}

// DecodeCreateRequest is its reverse.
func DecodeCreateRequest(b []byte) (r CreateRequest, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		switch field {
		case 1:
			r.Name = string(body)
		case 2:
			r.Actors = uint32(number)
		case 3:
			r.IsBackground = number != 0
		}
		return nil
	})
	return r, err
}

// CreateResponse names what the catalog has of the new job; ours.
type CreateResponse struct {
	Job       uint32   `json:"job"`
	Fragments []uint32 `json:"fragments"`
	Tables    []uint32 `json:"tables"`
}

// Encode writes the message.
func (r CreateResponse) Encode() []byte {
	b := Varint(nil, 1, uint64(r.Job))
	for _, f := range r.Fragments {
		b = Varint(b, 2, uint64(f))
	}
	for _, t := range r.Tables {
		b = Varint(b, 3, uint64(t))
	}
	return b
}

// DecodeCreateResponse is its reverse.
func DecodeCreateResponse(b []byte) (r CreateResponse, err error) {
	err = EachField(b, func(field protowire.Number, _ []byte, number uint64) error {
		switch field {
		case 1:
			r.Job = uint32(number)
		case 2:
			r.Fragments = append(r.Fragments, uint32(number))
		case 3:
			r.Tables = append(r.Tables, uint32(number))
		}
		return nil
	})
	return r, err
}

// EncodeCancelRequest writes meta.CancelCreatingJobsRequest by job ids.
func EncodeCancelRequest(ids ...uint32) []byte {
	var packed []byte
	for _, id := range ids {
		packed = protowire.AppendVarint(packed, uint64(id))
	}
	return Bytes(nil, 2, Bytes(nil, 1, packed))
}

// DecodeCancelRequest is its reverse; a request by names is not understood.
func DecodeCancelRequest(b []byte) (ids []uint32, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, _ uint64) error {
		if field != 2 {
			return nil
		}
		return EachField(body, func(_ protowire.Number, body []byte, number uint64) error {
			more, err := decodePacked(body, number)
			ids = append(ids, more...)
			return err
		})
	})
	return ids, err
}

// DecodeCanceled reads the ids of the response.
func DecodeCanceled(b []byte) (ids []uint32, err error) {
	err = EachField(b, func(field protowire.Number, body []byte, number uint64) error {
		if field != 2 {
			return nil
		}
		more, err := decodePacked(body, number)
		ids = append(ids, more...)
		return err
	})
	return ids, err
}

// DecodeStats reads monitor_service.GetStreamingStatsResponse: actors by fragment.
func DecodeStats(b []byte) (map[uint32]uint64, error) {
	actors := map[uint32]uint64{}
	err := EachField(b, func(field protowire.Number, body []byte, _ uint64) error {
		if field != 2 {
			return nil
		}
		var id uint32
		return EachField(body, func(field protowire.Number, body []byte, number uint64) (err error) {
			if field == 1 {
				id = uint32(number)
				return nil
			}
			actors[id], err = Number(body, 2)
			return err
		})
	})
	return actors, err
}

// DecodeTraces reads what monitor_service.StackTraceResponse says of actors and of the barrier worker, in its order.
func DecodeTraces(b []byte) (texts []string, err error) {
	err = EachField(b, func(_ protowire.Number, body []byte, _ uint64) error {
		return EachField(body, func(field protowire.Number, body []byte, _ uint64) error {
			if field == 2 {
				texts = append(texts, string(body))
			}
			return nil
		})
	})
	return texts, err
}
