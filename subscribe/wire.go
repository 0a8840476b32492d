package subscribe

import (
	"strconv"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
)

// A wire is how messages are written to a connection.
type wire struct {
	format  *feed.Format // of a message
	framing framing      // of the bytes on the connection
}

// A framing is what stands around each message.
type framing uint8

const (
	inFrames framing = iota // of a WebSocket
	framed                  // of a WebSocket; what a Single format appends has them
	inChunks                // of an HTTP/1.1 response (RFC 9112 section 7.1)
	bare                    // nothing: net/http adds what is needed, or it is an HTTP/1.0 response
)

// kind returns the way to follow.
func (w wire) kind() kind {
	if w.framing == inFrames || w.framing == framed {
		return byWebSocket
	}
	return byEventStream
}

// append appends a message.
func (w wire) append(dst, body []byte) []byte {
	return append(append(w.head(dst, len(body)), body...), w.tail()...)
}

// head appends what stands before the n bytes of a message.
func (w wire) head(dst []byte, n int) []byte {
	switch w.framing {
	case inFrames:
		opcode := byte(websocket.TextMessage)
		if w.format.Zstd {
			opcode = websocket.BinaryMessage
		}
		return appendFrameHead(dst, opcode, n)
	case inChunks:
		return append(strconv.AppendInt(dst, int64(n), 16), newline...)
	}
	return dst
}

var newline = []byte("\r\n")

// tail returns what stands behind a message. Nobody may change it.
func (w wire) tail() []byte {
	if w.framing == inChunks {
		return newline
	}
	return nil
}

// end returns the last bytes of a connection that ends at a cursor. In an event stream they
// tell only an error.
func (w wire) end(bye *closeFrame, cursor string) (last []byte) {
	if w.kind() == byWebSocket {
		text := bye.reason
		if bye.code != closeGone {
			text = strings.TrimSpace(cursor + " " + text)
		}
		return appendFrame(nil, websocket.CloseMessage, websocket.FormatCloseMessage(bye.code, text[:min(len(text), 123)]))
	}
	if bye.err != nil {
		last = w.append(last, lastEvent(bye.err))
	}
	if w.framing == inChunks {
		last = append(last, "0\r\n\r\n"...)
	}
	return last
}
