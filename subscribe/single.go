package subscribe

import (
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/accept"
)

// framesOf returns a format that appends WebSocket frames with messages in f, a Single format.
// The frames are encoded once for all connections.
func framesOf(f *feed.Format) *feed.Format {
	return &feed.Format{Name: f.Name, MediaType: f.MediaType, Single: true, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		for one := range b.Singles() {
			dst = appendFrame(dst, websocket.TextMessage, f.Append(nil, one, ""))
		}
		return dst
	}}
}

// eventsOf returns a format of event streams whose data is in f, a Single format without
// newlines.
func eventsOf(f *feed.Format) *feed.Format {
	return &feed.Format{Name: f.MediaType, MediaType: f.MediaType, Append: func(dst []byte, b *feed.Batch, _ string) []byte {
		for one := range b.Singles() {
			dst = append(one.Cursor.Append(append(dst, "id: "...)), "\ndata: "...)
			dst = append(f.Append(dst, one, ""), "\n\n"...)
		}
		return dst
	}}
}

// eventFormat returns the format of the event stream for r: the one whose media type r names in
// addition to the media type of event streams, otherwise JSON.
func (s *Server) eventFormat(r *http.Request) *feed.Format {
	for _, f := range s.events {
		if accept.Names(r.Header, f.MediaType) {
			return f
		}
	}
	return events
}
