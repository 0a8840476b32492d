package subscribe

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/gorilla/websocket"
)

// FuzzReadControl checks that valid control frames (RFC 6455) are read completely, and that all other
// frames are refused with a valid close code.
func FuzzReadControl(f *testing.F) {
	for _, frame := range []string{
		"", "\x89", "\x89\x80mask", "\x8a\x84maskping", "\x88\x82\x00\x00\x00\x00\x03\xe8", "\x88\x81mask1", "\x81\x80mask", "\x81\x01x", "\x09\x80mask",
		"\x89\xfe\x00\x7emask", "\xff\xff\xff\xff",
	} {
		f.Add([]byte(frame))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bytes.NewReader(sent)
		for {
			before := in.Len()
			opcode, payload, err := readControl(in)
			if err == nil && opcode == websocket.CloseMessage {
				_, err = readClose(payload)
			}
			r, refused := errors.AsType[*refusal](err)
			switch {
			case refused:
				if len(websocket.FormatCloseMessage(r.code, r.reason)) > maxControlPayload || r.code < 1002 || r.code > 1008 {
					t.Errorf("got refusal %+v, want a valid close code and a short reason", r)
				}
				return
			case err == io.EOF || err == io.ErrUnexpectedEOF:
				return
			case err != nil:
				t.Fatal(err)
			case opcode < websocket.CloseMessage || opcode > websocket.PongMessage || len(payload) > maxControlPayload:
				t.Errorf("got opcode %d with %d bytes, want a control frame", opcode, len(payload))
			}
			if n := before - in.Len(); n != 6+len(payload) {
				t.Errorf("frame with %d bytes of payload: read %d bytes, want %d", len(payload), n, 6+len(payload))
			}
		}
	})
}
