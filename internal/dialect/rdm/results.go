package rdm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// Memory of an answer, in bytes.
const (
	streamRoom = 1 << 20  // of one that is sent while it is made
	orderRoom  = 16 << 20 // of one that is ordered
	writeAt    = 64 << 10 // of text that is written at a time
)

// entries yields those that an answer is made of. After an error it ends. An entry is valid until
// the next one.
type entries = iter.Seq2[*feed.Entry, error]

// serveResults answers with the resource descriptions that a scope and a view choose.
func (s *Server) serveResults(w http.ResponseWriter, r *http.Request, m *message, st feed.State) error {
	ctx := r.Context()
	since, err := parseScope(m.scope)
	if err != nil {
		return err
	}
	room := int64(streamRoom)
	if m.view.order != nil {
		room = orderRoom
	}
	release, err := s.hub.Room(ctx, room)
	if err != nil {
		return err
	}
	defer release()
	kind, note, after := submission, "", feed.Cursor{}
	if m.kind == deletedRequest {
		kind = deletions
		if after, note, err = s.begin(ctx, st, since); err != nil {
			return err
		}
	}
	held, err := s.hub.Held(ctx, st.Set)
	if err != nil {
		return err
	}
	defer held.Release()
	found := held.All(ctx)
	if m.kind == deletedRequest {
		found = s.deleted(ctx, st.Set, after, held)
	}
	found = notBefore(found, since)
	if m.view.order != nil {
		found = m.view.ordered(found)
	}
	w.Header().Set("Last-Modified", date(held.Cursor.Time()))
	return s.stream(w, r, header(kind, s.catalogs+st.Set, note), found, &m.view)
}

// parseScope reads "all", which is the zero time, or "since DATE".
func parseScope(scope string) (since time.Time, err error) {
	if strings.EqualFold(scope, "all") {
		return since, nil
	}
	if word, text, _ := strings.Cut(scope, " "); strings.EqualFold(word, "since") {
		if since, err = http.ParseTime(strings.TrimSpace(text)); err == nil {
			return since, nil
		}
	}
	return since, resourcesync.Invalidf("Scope %q: a scope is all, or since and a date of HTTP, as in since Sun, 06 Nov 1994 08:49:37 GMT", resourcesync.Shorten(scope))
}

// notBefore leaves out what is before a time.
func notBefore(all entries, since time.Time) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range all {
			if (err != nil || !e.Time().Before(since)) && !yield(e, err) {
				return
			}
		}
	}
}

// begin returns the cursor behind which the deletions since a time are, and what the client has
// to know of those that are lost.
func (s *Server) begin(ctx context.Context, st feed.State, since time.Time) (after feed.Cursor, note string, err error) {
	lost := "the change memory begins at " + date(st.Floor.Time()) + ": deletions before that are not known any more"
	switch {
	case st.Floor.Position == 0: // nothing was removed
		return st.Floor, "", nil
	case since.IsZero():
		return st.Floor, lost, nil
	}
	after, err = s.hub.Seek(ctx, st.Set, since.UnixMicro())
	if errors.Is(err, feed.ErrGone) {
		gone := *feed.ErrGone
		gone.Detail = lost + ". Read all resources with rd-request, and delete what is not there"
		err = &gone
	}
	return after, "", err
}

// deleted yields the deletions after a cursor of resources that are not held. A resource may have
// several.
func (s *Server) deleted(ctx context.Context, set string, after feed.Cursor, held *Held) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for after.Position < held.Cursor.Position {
			b, err := s.hub.Since(ctx, set, after, 0)
			if err == nil && (b.Diverged || len(b.Entries) == 0) {
				err = fmt.Errorf("set %q was replaced while it was read: %w", set, feed.ErrUnavailable)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			after = b.Cursor
			var gone []*feed.Entry
			var locs []string
			for i := range b.Entries {
				if e := &b.Entries[i]; e.Change.Change == resourcesync.Deleted && e.Position <= held.Cursor.Position {
					gone, locs = append(gone, e), append(locs, e.Change.Loc)
				}
			}
			slices.Sort(locs)
			locs = slices.Compact(locs)
			there := map[string]bool{}
			if err := held.Find(ctx, locs, func(i int, _ *feed.Entry) { there[locs[i]] = true }); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range gone {
				if !there[e.Change.Loc] && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// ordered yields the first hits in the order of the view. It holds twice as many at most.
func (v *view) ordered(all entries) entries {
	return func(yield func(*feed.Entry, error) bool) {
		var best []feed.Entry
		bytes := 0
		cut := func() {
			slices.SortStableFunc(best, v.compare)
			best = best[:min(len(best), v.hits)]
			bytes = 0
			for i := range best {
				bytes += int(best[i].Change.Memory())
			}
		}
		for e, err := range all {
			if err != nil {
				yield(nil, err)
				return
			}
			best = append(best, e.Clone())
			if bytes += int(e.Change.Memory()); len(best) >= 2*v.hits || bytes > orderRoom {
				cut()
			}
			if bytes > orderRoom {
				yield(nil, resourcesync.Invalidf("View-Order: %d results are too large to be ordered; ask for fewer View-Hits", v.hits))
				return
			}
		}
		cut()
		for i := range best {
			if !yield(&best[i], nil) {
				return
			}
		}
	}
}

func (v *view) compare(a, b feed.Entry) int {
	for _, k := range v.order {
		c := strings.Compare(k.by.value(&a), k.by.value(&b))
		if n := k.by.number; n != nil {
			c = cmp.Compare(n(&a), n(&b))
		}
		if k.down {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// stream writes an answer while it reads what was found. An error means that nothing was answered.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, header *Object, found entries, v *view) error {
	asMessage(w.Header())
	if r.Method == http.MethodHead {
		return nil
	}
	text := header.Append(nil)
	results, begun := 0, false
	for e, err := range found {
		if err == nil {
			err = context.Cause(r.Context())
		}
		if err != nil && begun {
			s.log.DebugContext(r.Context(), "an answer of RDM was broken off", "err", err)
			panic(http.ErrAbortHandler) // so that the client does not take the part for a whole answer
		}
		if err != nil {
			return err
		}
		text = v.description(e).Append(text)
		if results++; results == v.hits {
			break
		}
		if len(text) >= writeAt {
			begun = true
			if _, err := w.Write(text); err != nil {
				return nil // the client is gone
			}
			text = text[:0]
		}
	}
	if results == 0 && header.Values("RDM-Error-Message") == nil {
		header.add("RDM-Error-Message", "0 results")
		text = header.Append(nil)
	}
	_, _ = w.Write(text) // the client may be gone
	return nil
}
