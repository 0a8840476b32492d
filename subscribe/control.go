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

	minFrame = 2 + 4 // of a client, with its mask

	maxControlPayload = 125 // longer ones have a length field of their own, which a control frame must not have
)

// A refusal is the error for a frame that a client must not send. The connection is
// closed with its code.
type refusal struct{ closeFrame }

func (r *refusal) Error() string { return r.reason }

func refuse(code int, reason string) error { return &refusal{closeFrame{code: code, reason: reason}} }

// readControl reads a control frame of a client, which must send no other frames. It reads
// nothing behind the frame. The error is a *refusal if the client must not send the frame.
// What follows in r is then of no use.
func readControl(r io.Reader) (opcode byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	opcode = head[0] & opcodes
	switch {
	case head[0]&reserved != 0:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame uses an extension that was not agreed on")
	case head[1]&masked == 0:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame is not masked")
	case opcode == websocket.TextMessage, opcode == websocket.BinaryMessage:
		return 0, nil, refuse(websocket.ClosePolicyViolation, "changes are published with POST, not here")
	case opcode != websocket.PingMessage && opcode != websocket.PongMessage && opcode != websocket.CloseMessage:
		return 0, nil, refuse(websocket.CloseProtocolError, "a frame is of no kind that may come here")
	case head[0]&final == 0, head[1]&length > maxControlPayload:
		return 0, nil, refuse(websocket.CloseProtocolError, "a control frame is in parts, or too long")
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
		return 0, refuse(websocket.CloseProtocolError, "a close frame has half a code")
	}
	code = int(binary.BigEndian.Uint16(payload))
	known := code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
	switch {
	case !known:
		return 0, refuse(websocket.CloseProtocolError, "a close frame has a code that must not be sent")
	case !utf8.Valid(payload[2:]):
		return 0, refuse(websocket.CloseInvalidFramePayloadData, "the reason in a close frame is not UTF-8")
	}
	return code, nil
}
