package subscribe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/problem"
	"github.com/rshub/rshub/resourcesync"
)

const eventStream = "text/event-stream"

// events is the format of an event stream (HTML Standard, Server-sent events). The data of an
// event is a batch as JSON, and its id is the cursor to resume from. Every event has data:
// browsers drop events without data, but other clients do not, and their JSON parsers fail on
// an empty text.
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
// reconnects, gets the same error as a status, and gives up.
func lastEvent(err error) []byte {
	p := problem.From(err)
	name := "error"
	if p.Status == http.StatusGone {
		name = "gone"
	}
	body, _ := json.Marshal(p) // strings and numbers only
	return slices.Concat([]byte("event: "+name+"\ndata: "), body, []byte("\n\n"))
}

// resumeParameters are the query parameters that replace the header Last-Event-ID for clients
// that cannot set it. The first non-empty one counts: a polyfill of EventSource appends
// lastEventId to a URL that may already have one of the others, which are Mercure's.
var resumeParameters = []string{"lastEventId", "lastEventID", "Last-Event-ID"}

// resumption returns where an event stream starts: the header Last-Event-ID, otherwise one of
// resumeParameters, otherwise since. A client reconnects with its first URL, so since is older
// than the others.
func resumption(h http.Header, q url.Values) string {
	ids := []string{h.Get("Last-Event-ID")}
	for _, name := range resumeParameters {
		ids = append(ids, q.Get(name))
	}
	return cmp.Or(append(ids, q.Get("since"))...)
}

// refuseResumption returns an error if q has one of resumeParameters, which only event streams
// use; elsewhere they would be ignored.
func refuseResumption(q url.Values) error {
	for _, name := range resumeParameters {
		if q.Get(name) != "" {
			return resourcesync.Invalidf("%s is for event streams (Accept: text/event-stream); use since instead", name)
		}
	}
	return nil
}

// Limits of the delay before a client reconnects. Each connection gets a random delay, so that
// clients that lost their connections together do not return together.
const (
	minRetry = time.Second
	maxRetry = 5 * time.Second
)

// serveEvents serves an event stream. Over HTTP/1 it hijacks the connection when net/http has
// written the header of the response, and returns.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, set string) error {
	q := r.URL.Query()
	filter, err := feed.ParseFilter(q)
	if err != nil {
		return err
	}
	c := &conn{server: s, filter: filter, key: groupKey{set: set, wire: wire{s.eventFormat(r), unframed}}}
	first, err := c.setStart(r.Context(), resumption(r.Header, q))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store, no-transform") // a proxy that compresses would delay events
	h.Set("X-Accel-Buffering", "no")                 // so that nginx does not buffer the stream
	h.Set("Incremental", "?1")                       // RFC 10036, for other proxies
	if r.ProtoMajor == 1 {
		h.Set("Connection", "close") // it cannot be returned to net/http
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
		return nil // the client left
	}
	begin := fmt.Appendf(nil, "retry: %d\n", (minRetry + rand.N(maxRetry-minRetry+1)).Milliseconds())
	if first != nil {
		begin = append(begin, first.Encode(c.key.format)...)
	}
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // as over HTTP/2
		res := newResponse(s, w, r)
		defer res.wait()
		nc = res
	} else if r.ProtoAtLeast(1, 1) {
		c.key.framing = httpChunks
	}
	c.nc, c.control = nc, c.key.append(nil, begin)
	c.start(r.Context())
	return nil
}
