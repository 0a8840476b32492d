package subscribe

import (
	"encoding/binary"
	"io"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// The bits of a frame's first two bytes (RFC 6455 section 5.2).
const (
	final    = 0x80
	reserved = 0x70
	opcodes  = 0x0f
	masked   = 0x80
	length   = 0x7f

	minFrame = 2 + 4 // frame of a client, with its mask

	maxControlPayload = 125 // longer payloads need a length field that control frames must not have
)

// A refusal is the error for a frame that a client must not send. It has the code to close the
// connection with.
type refusal struct{ closeFrame }

func (r *refusal) Error() string { return r.reason }

func refuse(code int, reason string) error { return &refusal{closeFrame{code: code, reason: reason}} }

// readControl reads a control frame of a client, which must not send other frames. It reads
// nothing after the frame. If the client must not send the frame, the error is a *refusal, and
// the rest of r is unusable.
func readControl(r io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	opcode = head[0] & opcodes
	switch {
	case head[0]&reserved != 0:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame uses an extension that was not negotiated")
	case head[1]&masked == 0:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame is not masked")
	case opcode == websocket.TextMessage, opcode == websocket.BinaryMessage:
		return 0, nil, refuse(websocket.ClosePolicyViolation, "changes must be published with POST")
	case opcode != websocket.PingMessage && opcode != websocket.PongMessage && opcode != websocket.CloseMessage:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame has an unknown opcode")
	case head[0]&final == 0, head[1]&length > maxControlPayload:
		return 0, nil, refuse(websocket.CloseProtocolError, "a control frame is fragmented or too long")
	}
	rest := make([]byte, minFrame-len(head)+int(head[1]&length))
	if _, err := io.ReadFull(r, rest); err != nil {
		return 0, nil, err
	}
	mask, payload := rest[:4], rest[4:]
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return opcode, payload, nil
}

// readClose returns the code in the payload of a client's close frame (RFC 6455
// sections 5.5.1 and 7.4).
func readClose(payload []byte) (code int, err error) {
	switch len(payload) {
	case 0:
		return websocket.CloseNoStatusReceived, nil
	case 1:
		return 0, refuse(websocket.CloseProtocolError, "a close frame has a truncated code")
	}
	code = int(binary.BigEndian.Uint16(payload))
	known := code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
	switch {
	case !known:
		return 0, refuse(websocket.CloseProtocolError, "a close frame has an invalid code")
	case !utf8.Valid(payload[2:]):
		return 0, refuse(websocket.CloseInvalidFramePayloadData, "the reason of a close frame is not valid UTF-8")
	}
	return code, nil
}
