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

// Sizes in bytes: memory reserved for responses, and writes.
const (
	streamMemory = 1 << 20  // for a streamed response
	sortMemory   = 16 << 20 // for a sorted response
	flushSize    = 64 << 10 // size of a write of text
)

// entries yields the entries of a response. It stops after an error. An entry is valid until the
// next one.
type entries = iter.Seq2[*feed.Entry, error]

// serveResults writes the resource descriptions selected by a scope and a view.
func (s *Server) serveResults(w http.ResponseWriter, r *http.Request, m *message, st feed.State) error {
	ctx := r.Context()
	since, err := parseScope(m.scope)
	if err != nil {
		return err
	}
	memory := int64(streamMemory)
	if m.view.order != nil {
		memory = sortMemory
	}
	release, err := s.hub.ReserveMemory(ctx, memory)
	if err != nil {
		return err
	}
	defer release()
	kind, note, after := submission, "", feed.Cursor{}
	if m.kind == deletedRequest {
		kind = deletions
		if after, note, err = s.startCursor(ctx, st, since); err != nil {
			return err
		}
	}
	snapshot, err := s.hub.Snapshot(ctx, st.Set)
	if err != nil {
		return err
	}
	defer snapshot.Release()
	found := snapshot.All(ctx)
	if m.kind == deletedRequest {
		found = s.deletedEntries(ctx, st.Set, after, snapshot)
	}
	found = notBefore(found, since)
	if m.view.order != nil {
		found = m.view.sortEntries(found)
	}
	w.Header().Set("Last-Modified", date(snapshot.Cursor.Time()))
	return s.stream(w, r, header(kind, s.catalogs+st.Set, note), found, &m.view)
}

// parseScope parses "all", which is the zero time, or "since DATE".
func parseScope(scope string) (since time.Time, err error) {
	if strings.EqualFold(scope, "all") {
		return since, nil
	}
	if word, text, _ := strings.Cut(scope, " "); strings.EqualFold(word, "since") {
		if since, err = http.ParseTime(strings.TrimSpace(text)); err == nil {
			return since, nil
		}
	}
	return since, resourcesync.Invalidf("Scope: got %q, want all, or since and an HTTP date, as in since Sun, 06 Nov 1994 08:49:37 GMT", resourcesync.Shorten(scope))
}

// notBefore yields the entries that are not before a time.
func notBefore(all entries, since time.Time) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range all {
			if (err != nil || !e.Time().Before(since)) && !yield(e, err) {
				return
			}
		}
	}
}

// startCursor returns the cursor after which the deletions since a time are, and a note for the
// client if earlier ones are lost.
func (s *Server) startCursor(ctx context.Context, st feed.State, since time.Time) (after feed.Cursor, note string, err error) {
	lost := "the change memory starts at " + date(st.Floor.Time()) + "; earlier deletions are no longer known"
	switch {
	case st.Floor.Position == 0: // nothing was removed
		return st.Floor, "", nil
	case since.IsZero():
		return st.Floor, lost, nil
	}
	after, err = s.hub.Seek(ctx, st.Set, since.UnixMicro())
	if errors.Is(err, feed.ErrGone) {
		gone := *feed.ErrGone
		gone.Detail = lost + ". Read all resources with rd-request, and delete all others"
		err = &gone
	}
	return after, "", err
}

// deletedEntries yields the deletions after a cursor of resources that are not in the snapshot. A
// resource may have several.
func (s *Server) deletedEntries(ctx context.Context, set string, after feed.Cursor, snapshot *Snapshot) entries {
	return func(yield func(*feed.Entry, error) bool) {
		for after.Position < snapshot.Cursor.Position {
			b, err := s.hub.Since(ctx, set, after, 0)
			if err == nil && (b.Diverged || len(b.Entries) == 0) {
				err = fmt.Errorf("set %q was replaced while being read: %w", set, feed.ErrUnavailable)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			after = b.Cursor
			var deleted []*feed.Entry
			var locs []string
			for i := range b.Entries {
				if e := &b.Entries[i]; e.Change.Change == resourcesync.Deleted && e.Position <= snapshot.Cursor.Position {
					deleted, locs = append(deleted, e), append(locs, e.Change.Loc)
				}
			}
			slices.Sort(locs)
			locs = slices.Compact(locs)
			exists := map[string]bool{}
			if err := snapshot.Find(ctx, locs, func(i int, _ *feed.Entry) { exists[locs[i]] = true }); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range deleted {
				if !exists[e.Change.Loc] && !yield(e, nil) {
					return
				}
			}
		}
	}
}

// sortEntries yields the first v.hits entries in the order of the view. It stores at most twice as
// many.
func (v *view) sortEntries(all entries) entries {
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
			if bytes += int(e.Change.Memory()); len(best) >= 2*v.hits || bytes > sortMemory {
				cut()
			}
			if bytes > sortMemory {
				yield(nil, resourcesync.Invalidf("View-Order: %d results are too large to sort; use a smaller View-Hits", v.hits))
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

// compare compares two entries in the order of the view.
func (v *view) compare(a, b feed.Entry) int {
	for _, k := range v.order {
		c := strings.Compare(k.attribute.value(&a), k.attribute.value(&b))
		if n := k.attribute.sortValue; n != nil {
			c = cmp.Compare(n(&a), n(&b))
		}
		if k.descending {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// stream writes a response while it reads the entries. If it returns an error, it has not written
// anything.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, header *Object, found entries, v *view) error {
	setMessageHeader(w.Header())
	if r.Method == http.MethodHead {
		return nil
	}
	text := header.Append(nil)
	results, started := 0, false
	for e, err := range found {
		if err == nil {
			err = context.Cause(r.Context())
		}
		if err != nil && started {
			s.log.DebugContext(r.Context(), "RDM response aborted", "err", err)
			panic(http.ErrAbortHandler) // so that the client does not mistake the partial response for a complete one
		}
		if err != nil {
			return err
		}
		text = v.description(e).Append(text)
		if results++; results == v.hits {
			break
		}
		if len(text) >= flushSize {
			started = true
			if _, err := w.Write(text); err != nil {
				return nil // the client has disconnected
			}
			text = text[:0]
		}
	}
	if results == 0 && header.Values("RDM-Error-Message") == nil {
		header.add("RDM-Error-Message", "0 results")
		text = header.Append(nil)
	}
	_, _ = w.Write(text) // the client may have disconnected
	return nil
}
