package subscribe

import (
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
)

// framesOf returns the format of the frames of a WebSocket whose messages are in f, a Single
// format. It makes them once for all connections, as all formats do.
func framesOf(f *feed.Format) *feed.Format {
	return &feed.Format{Name: f.Name, MediaType: f.MediaType, Single: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		for one := range b.Singles() {
			dst = appendFrame(dst, websocket.TextMessage, f.Append(nil, one, ""))
		}
		return dst
	}}
}

// eventsOf returns the format of an event stream whose events have data in f, a Single format
// without newlines.
func eventsOf(f *feed.Format) *feed.Format {
	return &feed.Format{Name: f.MediaType, MediaType: f.MediaType, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		for one := range b.Singles() {
			dst = append(one.Cursor.Append(append(dst, "id: "...)), "\ndata: "...)
			dst = append(f.Append(dst, one, ""), "\n\n"...)
		}
		return dst
	}}
}

// eventFormat returns the format of the event stream that r accepts: one whose media type r
// names besides that of event streams, or JSON.
func (s *Server) eventFormat(r *http.Request) *feed.Format {
	for _, f := range s.events {
		if accept.Names(r.Header, f.MediaType) {
			return f
		}
	}
	return events
}
