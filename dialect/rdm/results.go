package rdm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// An attribute is one that resource descriptions have.
type attribute struct {
	name, kind, about string
	value             func(e *feed.Entry) string // empty: absent
	number            func(e *feed.Entry) int64  // what results are ordered by; nil: the value
}

var attributes = []attribute{
	{"URL", "varchar", "The URL of the resource. It stands behind the type of the object.", func(e *feed.Entry) string { return e.Change.Loc }, nil},
	{"RD-Last-Modified", "date", "When the hub accepted the newest change of the resource.",
		func(e *feed.Entry) string { return date(e.Time()) }, func(e *feed.Entry) int64 { return e.Micros }},
	{"Last-Modified", "date", "When the resource changed, as its source says.",
		func(e *feed.Entry) string { return date(e.Change.Lastmod) }, func(e *feed.Entry) int64 { return e.Change.Lastmod.UnixMicro() }},
	{"Content-Type", "varchar", "The media type.", func(e *feed.Entry) string { return e.Change.Type }, nil},
	{"Content-Length", "int", "The number of bytes.", length, func(e *feed.Entry) int64 {
		if e.Change.Length == nil {
			return -1
		}
		return *e.Change.Length
	}},
	{"MD5", "varchar", "The MD5 of the content, in hex digits.", func(e *feed.Entry) string { return resourcesync.Digest(e.Change.Hash, "md5") }, nil},
	{"Hash", "varchar", "All hashes of the content, such as sha-256:HEX, with spaces between them.", func(e *feed.Entry) string { return e.Change.Hash }, nil},
	{"Change", "varchar", "What the newest change was: created, updated or deleted.", func(e *feed.Entry) string { return string(e.Change.Change) }, nil},
}

func attributeNames() string {
	var names []string
	for _, a := range attributes {
		names = append(names, a.name)
	}
	return strings.Join(names, ", ")
}

// date returns a time in the form of HTTP; the zero time is empty.
func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(http.TimeFormat)
}

func length(e *feed.Entry) string {
	if e.Change.Length == nil {
		return ""
	}
	return strconv.FormatInt(*e.Change.Length, 10)
}

// description returns the resource description of an entry, as a view shows it.
func (v *view) description(e *feed.Entry) *Object {
	o := &Object{Type: "DOCUMENT", URL: e.Change.Loc}
	for i := 1; i < len(attributes); i++ {
		if a := &attributes[i]; v.shows(a.name) {
			o.add(a.name, a.value(e))
		}
	}
	return o
}

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
	a := answer{kind: submission, catalog: s.catalogs + st.Set}
	var after feed.Cursor
	if m.kind == deletedRequest {
		a.kind = deletions
		if after, a.note, err = s.begin(ctx, st, since); err != nil {
			return err
		}
	}
	held, err := s.hub.Held(ctx, st.Set)
	if err != nil {
		return err
	}
	defer held.Release()
	if a.entries = held.All(ctx); m.kind == deletedRequest {
		a.entries = s.deleted(ctx, st.Set, after, held)
	}
	a.entries = m.view.of(notBefore(a.entries, since))
	w.Header().Set("Last-Modified", date(held.Cursor.Time()))
	return s.stream(w, r, &a, &m.view)
}

// Memory of an answer, in bytes.
const (
	streamRoom = 1 << 20  // of one that is sent while it is made
	orderRoom  = 16 << 20 // of one that is ordered
	writeAt    = 64 << 10 // of text that is written at a time
)

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
	return since, resourcesync.Invalid("Scope %q: a scope is all, or since and a date of HTTP, as in since Sun, 06 Nov 1994 08:49:37 GMT", resourcesync.Shorten(scope))
}

// notBefore leaves out entries before a time. Errors stay.
func notBefore(entries iter.Seq2[*feed.Entry, error], since time.Time) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		for e, err := range entries {
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
func (s *Server) deleted(ctx context.Context, set string, after feed.Cursor, held *Held) iter.Seq2[*feed.Entry, error] {
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
			var found []*feed.Entry
			var locs []string
			for i := range b.Entries {
				if e := &b.Entries[i]; e.Change.Change == resourcesync.Deleted && e.Position <= held.Cursor.Position {
					found, locs = append(found, e), append(locs, e.Change.Loc)
				}
			}
			slices.Sort(locs)
			locs = slices.Compact(locs)
			there := map[string]bool{}
			if err := held.Find(ctx, locs, func(i int, _ *feed.Entry) { there[locs[i]] = true }); err != nil {
				yield(nil, err)
				return
			}
			for _, e := range found {
				if !there[e.Change.Loc] && !yield(e, nil) {
					return
				}
			}
			after = b.Cursor
		}
	}
}

// of yields what a view shows of entries, in its order. An error ends it.
func (v *view) of(entries iter.Seq2[*feed.Entry, error]) iter.Seq2[*feed.Entry, error] {
	if v.order != nil {
		entries = v.ordered(entries)
	}
	return func(yield func(*feed.Entry, error) bool) {
		n := 0
		for e, err := range entries {
			n++
			if !yield(e, err) || err != nil || n == v.hits {
				return
			}
		}
	}
}

// ordered yields the first hits in the order. It holds twice as many at most.
func (v *view) ordered(entries iter.Seq2[*feed.Entry, error]) iter.Seq2[*feed.Entry, error] {
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
		for e, err := range entries {
			if err != nil {
				yield(nil, err)
				return
			}
			best = append(best, *e)
			if bytes += int(e.Change.Memory()); len(best) >= 2*v.hits || bytes > orderRoom {
				cut()
			}
			if bytes > orderRoom {
				yield(nil, resourcesync.Invalid("View-Order: %d results are too large to be ordered; ask for fewer View-Hits", v.hits))
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
		var c int
		if n := k.by.number; n != nil {
			c = cmp.Compare(n(&a), n(&b))
		} else {
			c = strings.Compare(k.by.value(&a), k.by.value(&b))
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

// An answer is one with resource descriptions.
type answer struct {
	kind, catalog, note string
	entries             iter.Seq2[*feed.Entry, error]
}

// stream writes an answer while it reads the entries. An error means that nothing was answered.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, a *answer, v *view) error {
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return nil
	}
	var text []byte
	results, begun := 0, false
	for e, err := range a.entries {
		if err == nil {
			err = context.Cause(r.Context())
		}
		if err == nil && results == 0 {
			text = header(nil, a.kind, a.catalog, a.note, 0)
		}
		if results++; err == nil {
			text = v.description(e).Append(text)
		}
		if err == nil && len(text) >= writeAt {
			begun = true
			_, err = w.Write(text)
			text = text[:0]
		}
		if err != nil && begun {
			s.log.DebugContext(r.Context(), "an answer of RDM was broken off", "err", err)
			panic(http.ErrAbortHandler) // so that the client does not take the part for a whole answer
		}
		if err != nil {
			return err
		}
	}
	if results == 0 {
		text = header(nil, a.kind, a.catalog, cmp.Or(a.note, "0 results"), 0)
	}
	_, _ = w.Write(text) // the client may be gone
	return nil
}
