package subscribe

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rshub/rshub/changelog"
)

const eventStream = "text/event-stream"

// serveEvents follows as an event stream (HTML Standard, Server-sent events):
// the data of an event is a batch, its id the cursor to resume from.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, set string) error {
	since := r.URL.Query().Get("since")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		since = id // a reconnect of a browser repeats the URL it began with
	}
	filter, err := changelog.ParseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	begin, err := s.begin.Find(r.Context(), set, since)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for nginx
	if begin.Diverged {
		h.Set("RS-Diverged", "true")
	}
	if r.Method == http.MethodHead {
		return nil
	}
	place, leave := s.enter(byEventStream, set, begin.Cursor)
	defer leave()
	e := eventWriter{
		write: func(p []byte) error { return s.write(w, p) }, told: begin.Cursor,
		place: place, delivered: &s.metrics.delivered[byEventStream],
	}
	e.buf = append(e.buf, "retry: 1000\n"...)
	e.start(begin)
	for err = e.flush(); err == nil; err = e.flush() {
		if err = s.streamEvents(ctx, &e, set, filter); err != nil || ctx.Err() != nil {
			break
		}
		e.heartbeat()
	}
	s.streamClosed(r, err)
	return nil // what was to say has been said in the stream
}

// errFollow tells what is wrong with following from what is wrong with writing.
var errFollow = errors.New("following failed")

// streamEvents writes events until a heartbeat is due or ctx is done, then
// returns nil, or until the stream is over.
func (s *Server) streamEvents(ctx context.Context, e *eventWriter, set string, filter changelog.Filter) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Heartbeat)
	defer cancel()
	for batches, err := range s.follower.Follow(ctx, set, e.cursor) {
		if err != nil {
			e.gone(err)
			s.logFailure(set, err)
			return errors.Join(errFollow, err, e.flush())
		}
		for _, b := range batches {
			e.batch(filter, b)
			if len(e.buf) >= maxChunk {
				if err := e.flush(); err != nil {
					return err
				}
			}
		}
		if err := e.flush(); err != nil {
			return err
		}
	}
	return nil
}

// An eventWriter gathers events and writes what waits in one call.
type eventWriter struct {
	write  func([]byte) error
	buf    []byte
	cursor changelog.Cursor // of what was looked at
	told   changelog.Cursor // of what the client knows

	place     *place
	tally     tally // of what waits
	delivered *delivered
}

// start tells the cursor that the stream begins with. Without data it is no
// event to a page, but an id to resume from all the same.
func (e *eventWriter) start(b *changelog.Batch) {
	e.cursor = b.Cursor
	if b.Diverged {
		e.event(b)
		return
	}
	e.id()
	e.buf = append(e.buf, '\n')
}

func (e *eventWriter) id() {
	e.told = e.cursor
	e.buf = append(e.buf, "id: "...)
	e.buf = e.cursor.Append(e.buf)
	e.buf = append(e.buf, '\n')
}

// batch writes what passes the filter. What it leaves out before an event
// belongs to that event's interval, so that after is the id before.
func (e *eventWriter) batch(filter changelog.Filter, b *changelog.Batch) {
	if b.Diverged {
		e.told = b.After
	}
	if !filter.IsZero() {
		b = filter.Apply(b)
		b.After = e.told
	}
	e.cursor = b.Cursor
	if len(b.Entries) > 0 || b.Diverged {
		e.event(b)
	}
}

func (e *eventWriter) event(b *changelog.Batch) {
	begin := len(e.buf)
	e.id()
	e.buf = append(e.buf, "data: "...)
	e.buf = append(e.buf, b.JSON()...)
	e.buf = append(e.buf, "\n\n"...)
	e.tally.add(len(b.Entries), len(e.buf)-begin)
}

// heartbeat shows that the stream lives, and the cursor if it moved.
func (e *eventWriter) heartbeat() {
	e.buf = append(e.buf, ":\n"...)
	if e.cursor != e.told {
		e.id()
	}
	e.buf = append(e.buf, '\n')
}

// gone ends the stream with an event that says why. A page that connects again
// gets the same as a status, and stops.
func (e *eventWriter) gone(err error) {
	p := changelog.NewProblem(err)
	name := "error"
	if p.Status == http.StatusGone {
		name = "gone"
	}
	body, _ := json.Marshal(p) // strings and numbers only
	e.buf = append(e.buf, "event: "+name+"\ndata: "...)
	e.buf = append(e.buf, body...)
	e.buf = append(e.buf, "\n\n"...)
}

func (e *eventWriter) flush() error {
	if len(e.buf) == 0 {
		e.place.moveTo(e.cursor) // past what a filter left out
		return nil
	}
	err := e.write(e.buf)
	if err == nil {
		e.place.moveTo(e.cursor)
		e.delivered.count(&e.tally)
	}
	if e.buf = e.buf[:0]; cap(e.buf) > maxIdle {
		e.buf = nil // a stream is mostly silent
	}
	return err
}

// pieceSize is what a client must take within a write timeout.
const pieceSize = 16 << 10

// write writes a response in pieces with a deadline each: a client may be slow,
// but not stop. It leaves no deadline behind, which would hold for the next
// request of the connection.
func (s *Server) write(w http.ResponseWriter, p []byte) (err error) {
	c := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; then the server's own hold.
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }()
	for piece := range slices.Chunk(p, pieceSize) {
		_ = c.SetWriteDeadline(time.Now().Add(s.opts.WriteTimeout))
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return c.Flush()
}
