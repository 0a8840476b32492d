package rdm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/problem"
	"github.com/rshub/rshub/rdm/soif"
)

const (
	streamRoom = 1 << 20  // what an answer takes that is sent while it is read
	writeAt    = 64 << 10 // bytes that are written at a time
	readAtOnce = 1000     // entries that are read from the log at a time
)

// An entries is a sequence of entries, which ends with the first error.
type entries = iter.Seq2[*feed.Entry, error]

// descriptions answers a request for RDs, or for deleted ones. The answer is sent while it is
// made, so it takes no memory in proportion to the set.
func (s *Server) descriptions(ctx context.Context, w http.ResponseWriter, r *http.Request, m *message, set string) error {
	if err := s.need(m, set); err != nil {
		return err
	}
	since, has, err := parseScope(m.scope)
	if err != nil {
		return err
	}
	room := int64(streamRoom)
	if len(m.view.order) > 0 {
		room += orderRoom
	}
	share, err := s.opts.Streams.Take(ctx, room)
	if err != nil {
		return err
	}
	defer share.Release()
	held, err := s.hub.Hold(ctx, set)
	if err != nil {
		return err
	}
	defer held.Release()
	head := newHeader(replies[m.kind])
	head.Add("Catalog-Service-ID", s.csid(set))
	head.Add("RS-Cursor", held.Cursor().String())
	var all entries
	if m.kind == rdRequestDeleted {
		from, err := s.begin(ctx, set, since, has)
		if err != nil {
			return err
		}
		head.Add("RS-Since", date(from.Time()))
		all = s.deleted(ctx, set, held, from)
	} else {
		complete := "false"
		if held.Complete {
			complete = "true"
		}
		head.Add("RS-Complete", complete)
		all = newer(held.Walk(ctx, inventory.Range{}), since)
	}
	a := &answer{w: w, head: head, silent: r.Method == http.MethodHead}
	if !a.silent {
		err = a.all(ctx, all, &m.view)
	}
	if err == nil {
		err = a.end()
	}
	if err != nil && a.begun {
		if !errors.Is(err, errClient) && ctx.Err() == nil {
			s.opts.Logger.ErrorContext(ctx, "an answer of resource descriptions was broken off", "set", set, "err", err)
		}
		panic(http.ErrAbortHandler) // so that the client does not take a part for the whole
	}
	if err != nil {
		return fmt.Errorf("resource descriptions of set %q: %w", set, err)
	}
	return nil
}

// newer leaves out entries that were accepted before since, in microseconds since 1970.
func newer(all entries, since int64) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range all {
			if err == nil && e.Micros < since {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// begin returns the cursor behind which deleted RDs are looked for: that of a date, or the
// oldest one. It is an error if the log does not reach back to the date. A date has no
// fraction of a second, so it may be that of the second in which the log began.
func (s *Server) begin(ctx context.Context, set string, since int64, has bool) (feed.Cursor, error) {
	st, err := s.hub.State(ctx, set)
	if err != nil || !has || st.Floor.Position == 0 && since/second == st.Floor.Micros/second {
		return st.Floor, err
	}
	from, err := s.hub.Seek(ctx, set, since)
	if errors.Is(err, feed.ErrGone) {
		return from, problem.New(http.StatusGone, feed.ErrGone.Code, "the hub knows deletions only since "+date(st.Floor.Time())+
			": ask for all resource descriptions (rd-request, scope all), and drop those that the answer does not name")
	}
	return from, err
}

const second = 1_000_000 // in microseconds

// deleted yields the deletions behind a cursor of resources that do not exist as of held. A
// resource that was deleted several times may come several times.
func (s *Server) deleted(ctx context.Context, set string, held *Held, from feed.Cursor) entries {
	return func(yield func(*feed.Entry, error) bool) {
		end := held.Cursor().Position
		for from.Position < end {
			batch, err := s.hub.Since(ctx, set, from, readAtOnce)
			if err == nil && (batch.Diverged || len(batch.Entries) == 0) {
				err = feed.ErrUnavailable // the log lost its tail meanwhile
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range batch.Entries {
				e := &batch.Entries[i]
				if e.Position > end {
					return
				}
				if inventory.Exists(e) {
					continue
				}
				_, exists, err := held.Get(ctx, e.Change.Loc)
				if err != nil {
					yield(nil, err)
					return
				}
				if !exists && !yield(e, nil) {
					return
				}
			}
			from = batch.Cursor
		}
	}
}

// errClient means that the client is gone, or does not take the answer.
var errClient = errors.New("the client takes no more")

// An answer is RDs on their way to the client. Its header is sent with the first of them,
// because it says so if there is none.
type answer struct {
	w      http.ResponseWriter
	head   *soif.Object
	silent bool // only the header of HTTP is sent
	begun  bool
	count  int
	text   []byte
}

// all writes the RDs of all entries that a view shows.
func (a *answer) all(ctx context.Context, all entries, v *view) error {
	if len(v.order) > 0 {
		return a.ordered(ctx, all, v)
	}
	for e, err := range all {
		if err != nil {
			return err
		}
		o := describe(e)
		v.filter(o)
		if a.text, err = o.Append(a.text); err != nil {
			return err
		}
		a.count++
		if len(a.text) >= writeAt {
			if err := a.flush(ctx); err != nil {
				return err
			}
		}
		if a.count == v.hits {
			break
		}
	}
	return ctx.Err() // what is in memory is walked without asking
}

// flush sends what is written.
func (a *answer) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.begin()
	if _, err := a.w.Write(a.text); err != nil {
		return fmt.Errorf("%w: %w", errClient, err)
	}
	a.text = a.text[:0]
	return nil
}

// begin sends the header, once.
func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	h := a.w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("Expires", date(time.Now())) // for caches that know HTTP/1.0 only
	if a.silent {
		return
	}
	if a.count == 0 {
		a.head.Add("RDM-Error-Message", "0 results")
	}
	_, _ = a.w.Write(write(nil, a.head)) // the next write finds out as well
}

// end sends the rest.
func (a *answer) end() error {
	a.begin()
	if len(a.text) == 0 {
		return nil
	}
	if _, err := a.w.Write(a.text); err != nil {
		return fmt.Errorf("%w: %w", errClient, err)
	}
	return nil
}
