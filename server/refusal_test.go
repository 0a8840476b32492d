package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Types and flags of frames of HTTP/2 (RFC 9113 section 6).
const (
	dataFrame, headersFrame, resetFrame, settingsFrame = 0, 1, 3, 4

	endStream, endHeaders, ack = 1, 4, 1
)

func frame(b *bytes.Buffer, kind, flags byte, stream uint32, payload []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = append(head, flags)
	head = binary.BigEndian.AppendUint32(head, stream)
	b.Write(append(head, payload...))
}

// A client that has many requests under way on one connection, and takes no byte of the
// answers, does not have the hub keep the refusals for it. Others get theirs whole.
func TestRefusalsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	known, _ := tokens(t, "publish:* operate", "anyone - follow:*")
	h := start(t, Config{Callers: known, AddressLimits: limits(t, "requests:20/h"), WriteTimeout: time.Minute})
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(40 * time.Second)) // less than WriteTimeout
	var b bytes.Buffer
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(&b, settingsFrame, 0, 0, []byte{0, 4, 0, 0, 0, 0}) // a window of no byte
	for i := range maxStreams {
		block := []byte{0x82, 0x86, 0x84, 0x41, 9} // GET, http, /, :authority
		frame(&b, headersFrame, endStream|endHeaders, uint32(2*i+1), append(block, "localhost"...))
	}
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	const held = 20 + fullRefusals // those that are within the limit have their answers kept
	for ended := 0; ended < maxStreams-held; {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("%d of %d requests are over: %v", ended, maxStreams, err)
		}
		length := binary.BigEndian.Uint32(head[:4]) >> 8
		if _, err := io.CopyN(io.Discard, conn, int64(length)); err != nil {
			t.Fatal(err)
		}
		switch kind, flags := head[3], head[4]; {
		case kind == settingsFrame && flags&ack == 0:
			var b bytes.Buffer
			frame(&b, settingsFrame, ack, 0, nil)
			_, _ = conn.Write(b.Bytes())
		case kind == resetFrame, flags&endStream != 0 && (kind == headersFrame || kind == dataFrame):
			ended++
		}
	}
	p := newProxy(t, 1<<20)
	for range 2 * mostRefusals {
		if text := p.text(http.StatusTooManyRequests, http.MethodGet, h.URL+"/sets", ""); !strings.Contains(text, `"type"`) {
			t.Fatalf("a refusal is %q", text)
		}
	}
}
