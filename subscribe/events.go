package subscribe

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/problem"
)

const eventStream = "text/event-stream"

// events is the format of an event stream (HTML Standard, Server-sent events). The data of
// an event is a batch as JSON. Its id is the cursor to resume from. Every event has data. A
// browser does not show its page an event without data, but other clients do, and their
// JSON parsers fail on an empty text.
var events = &feed.Format{Append: func(dst []byte, b *feed.Batch, _ string) []byte {
	data := b.JSON()
	dst = append(slices.Grow(dst, len(data)+60), "id: "...)
	dst = append(b.Cursor.Append(dst), "\ndata: "...)
	return append(append(dst, data...), "\n\n"...)
}, Baseline: func() *feed.BaselineWriter {
	w := *feed.JSON.Baseline()
	head, tail := w.Head, w.Tail
	w.Head = func(dst []byte, p *feed.BaselinePart, next string) []byte {
		return head(append(dst, "id: "+p.Cursor()+"\ndata: "...), p, next)
	}
	w.Tail = func(dst []byte, p *feed.BaselinePart, next string) []byte {
		return append(tail(dst, p, next), "\n\n"...)
	}
	return &w
}}

// lastEvent returns the last event of a stream that ends because of an error. A browser then
// connects again, gets the same error as a status, and gives up.
func lastEvent(err error) []byte {
	p := problem.From(err)
	name := "error"
	if p.Status == http.StatusGone {
		name = "gone"
	}
	body, _ := json.Marshal(p) // strings and numbers only
	return slices.Concat([]byte("event: "+name+"\ndata: "), body, []byte("\n\n"))
}

// serveEvents lets a client follow by an event stream. Over HTTP/1 it takes over the
// connection when net/http has written the head of the response, and returns.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, set string) error {
	since := r.URL.Query().Get("since")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		since = id // a browser that connects again uses its first URL, with the old since
	}
	filter, err := feed.ParseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	c := &conn{server: s, filter: filter, key: groupKey{set: set, wire: wire{s.eventFormat(r), bare}}}
	first, err := c.begin(r.Context(), since)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store, no-transform") // a proxy that compresses would hold events back
	h.Set("X-Accel-Buffering", "no")                 // so that nginx does not buffer the stream
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // it cannot be given back to net/http
	}
	if first != nil && first.Diverged {
		h.Set("RS-Diverged", "true")
	}
	if r.Method == http.MethodHead {
		c.endBaseline()
		return nil
	}
	if err := s.write(w, nil); err != nil {
		c.endBaseline()
		return nil // the client is gone
	}
	begin := []byte("retry: 1000\n")
	if first != nil {
		begin = append(begin, first.In(c.key.format)...)
	}
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // as over HTTP/2
		res := newResponse(s, w, r)
		defer res.wait()
		nc = res
	} else if r.ProtoAtLeast(1, 1) {
		c.key.framing = inChunks
	}
	c.nc, c.control = nc, c.key.append(nil, begin)
	c.start(r.Context())
	return nil
}
