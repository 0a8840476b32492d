package subscribe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
)

// FuzzParseCommand checks that each message is either a valid command, or has an error of the client.
func FuzzParseCommand(f *testing.F) {
	for _, s := range []string{
		`{"follow":"a"}`, `{"id":"x","follow":"a","since":"start","prefix":"https:","change":["created","deleted"],"type":"text/*","collection":"urn:c"}`,
		`{"id":1.5e3,"follow":"*","since":"now"}`, `{"unfollow":"*"}`, `{"follow":"*","since":"1-1~2"}`, `{"follow":"a","unfollow":"a"}`, `{"id":null}`,
		`{"change":[[]]}`, `{"type":null}`, `{"follow":"a","follow":"b"}`, `[]`, ``, `{`, "{\"follow\":\"\xff\"}", `{"Follow":"a"}`, `{"id":[1]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c := parseCommand(text)
		if c.id != nil && (len(c.id) > maxID || !bytes.Contains(text, c.id)) {
			t.Errorf("got id %s, want a part of the message", c.id)
		}
		if c.err != nil {
			if p := problem.From(c.err); p.Status != 400 || p.Detail == "" {
				t.Errorf("parseCommand(%q) = %v with status %d, want 400 and a detail", text, c.err, p.Status)
			}
			return
		}
		if (c.follow == "") == (c.unfollow == "") || c.set() != everySet && feed.CheckSet(c.set()) != nil {
			t.Errorf("parseCommand(%q) = %+v, want one set", text, c)
		}
		if c.filter != nil && (c.filter.IsZero() || c.unfollow != "") {
			t.Errorf("parseCommand(%q): got filter %v, want none", text, c.filter)
		}
	})
}

// FuzzReadMessage checks that messages are at most as large as permitted, whatever their frames are,
// and that all other frames are refused with a valid close code.
func FuzzReadMessage(f *testing.F) {
	for _, frames := range []string{
		"\x81\x84mask\x00\x00\x00\x00", "\x01\x81maska\x89\x80mask\x80\x81maskb", "\x80\x80mask", "\x01\x80mask\x01\x80mask", "\x82\xfe\x00\x80mask" + strings.Repeat("x", 128),
		"\x81\xff\x00\x00\x00\x00\x00\x00\x00\x01mask1", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffmask", "\x88\x82mask\x03\xe8", "\x83\x80mask", "\x81\x01x",
	} {
		f.Add([]byte(frames))
	}
	const most = 200
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := messageReader{in: bytes.NewReader(sent), maxSize: most}
		for {
			opcode, payload, err := in.next()
			r, refused := errors.AsType[*refusal](err)
			switch {
			case refused:
				if r.code < 1002 || r.code > 1009 || len(r.reason) > maxControlPayload-2 {
					t.Errorf("got refusal %+v, want a valid close code and a short reason", r)
				}
				return
			case err == io.EOF || err == io.ErrUnexpectedEOF:
				return
			case err != nil:
				t.Fatal(err)
			case opcode == websocket.TextMessage || opcode == websocket.BinaryMessage:
				if len(payload) > most {
					t.Errorf("got a message of %d bytes, want at most %d", len(payload), most)
				}
			case opcode < websocket.CloseMessage || opcode > websocket.PongMessage || len(payload) > maxControlPayload:
				t.Errorf("got opcode %d with %d bytes, want a message or a control frame", opcode, len(payload))
			}
		}
	})
}
