//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
)

// The opcodes of WebSocket frames (RFC 6455 section 5.2).
const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// A message is a WebSocket frame or an event. Neither rshub nor a floor
// fragments its messages, so a frame is a message.
type message struct {
	op   byte
	body []byte // a part of what was read, valid until the next read
}

// A splitter takes the first message off b. ok is false while the message is incomplete.
type splitter func(b []byte) (m message, rest []byte, ok bool)

// splitFrame takes an unmasked frame, as a WebSocket server sends it, off b.
func splitFrame(b []byte) (m message, rest []byte, ok bool) {
	if len(b) < 2 {
		return m, b, false
	}
	head, n := 2, uint64(b[1]&0x7f)
	switch {
	case n == 126 && len(b) >= 4:
		head, n = 4, uint64(binary.BigEndian.Uint16(b[2:]))
	case n == 127 && len(b) >= 10:
		head, n = 10, binary.BigEndian.Uint64(b[2:])
	case n >= 126:
		return m, b, false
	}
	if uint64(len(b)-head) < n {
		return m, b, false
	}
	end := head + int(n)
	return message{b[0] & 15, b[head:end]}, b[end:], true
}

// splitEvent takes an event off an event stream. It leaves the heads of HTTP chunks in the
// event. That works because each event is written whole, so no chunk ends within one.
func splitEvent(b []byte) (m message, rest []byte, ok bool) {
	i := bytes.Index(b, []byte("\n\n"))
	if i < 0 {
		return m, b, false
	}
	return message{opText, b[:i]}, b[i+2:], true
}

// appendFrame appends a final frame. The frames of a client must be masked. Here the
// masking key is zero, which is legal and changes no byte.
func appendFrame(dst []byte, op byte, body []byte, client bool) []byte {
	var mask byte
	if client {
		mask = 0x80
	}
	dst = append(dst, 0x80|op)
	switch n := len(body); {
	case n < 126:
		dst = append(dst, mask|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, mask|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, mask|127), uint64(n))
	}
	if client {
		dst = append(dst, 0, 0, 0, 0)
	}
	return append(dst, body...)
}
