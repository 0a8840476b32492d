package subscribe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/rshub/rshub/changelog"
	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/budget"
	"github.com/rshub/rshub/inventory"
	"github.com/rshub/rshub/resourcesync"
	"github.com/rshub/rshub/subscribe"
)

// A shelf keeps snapshots of the set a, each made of the whole log.
type shelf struct {
	log changelog.Log

	mu       sync.Mutex
	kept     map[feed.Cursor]resources
	held     int
	complete bool
	fail     error // of Snapshot
	walks    int   // after so many more walks the snapshots are gone; 0: they stay
}

// resources are the entries of a snapshot, in the order of loc.
type resources struct {
	shelf   *shelf
	cursor  feed.Cursor
	entries []feed.Entry
	tallies []inventory.Tally // of one resource each
}

func (s *shelf) snapshot(ctx context.Context, set string, at feed.Cursor) (*subscribe.Snapshot, error) {
	state, err := s.log.State(ctx, set)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	r, ok := s.kept[at]
	switch {
	case !ok && !at.IsZero():
		return nil, feed.ErrGone
	case !ok:
		if r, ok = s.kept[state.Head]; ok {
			break
		}
		if r, err = s.fold(ctx, state); err != nil {
			return nil, err
		}
		s.kept[r.cursor] = r
	}
	s.held++
	return &subscribe.Snapshot{Resources: r, Complete: s.complete, Release: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	}}, nil
}

// fold reads what the log says that there is.
func (s *shelf) fold(ctx context.Context, state feed.State) (resources, error) {
	all, cur := map[string]feed.Entry{}, state.Floor
	for {
		b, err := s.log.Since(ctx, state.Set, cur, 10_000)
		if err != nil {
			return resources{}, err
		}
		if len(b.Entries) == 0 {
			break
		}
		for _, e := range b.Entries {
			if all[e.Change.Loc] = e; e.Change.Change == resourcesync.Deleted {
				delete(all, e.Change.Loc)
			}
		}
		cur = b.Cursor
	}
	r := resources{shelf: s, cursor: cur}
	for _, loc := range slices.Sorted(maps.Keys(all)) {
		e := all[loc]
		r.entries, r.tallies = append(r.entries, e), append(r.tallies, inventory.TallyOf(&e))
	}
	return r, nil
}

// drop drops every snapshot that was taken.
func (s *shelf) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
}

func (s *shelf) holding() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (r resources) Cursor() feed.Cursor { return r.cursor }

func (r resources) Tally(_ context.Context, in inventory.Range) (t inventory.Tally, err error) {
	for i := r.find(in.From); i < len(r.entries) && in.Has(r.entries[i].Change.Loc); i++ {
		t.Add(&r.tallies[i])
	}
	return t, nil
}

// find returns the index of the first resource that is not before a loc.
func (r resources) find(loc string) int {
	return sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Change.Loc >= loc })
}

func (r resources) Nth(_ context.Context, n uint64) (string, bool, error) {
	if n >= uint64(len(r.entries)) {
		return "", false, nil
	}
	return r.entries[n].Change.Loc, true, nil
}

func (r resources) Walk(ctx context.Context, in inventory.Range) iter.Seq2[*feed.Entry, error] {
	return func(yield func(*feed.Entry, error) bool) {
		r.shelf.mu.Lock()
		if r.shelf.walks > 0 {
			if r.shelf.walks--; r.shelf.walks == 0 {
				clear(r.shelf.kept)
			}
		}
		_, kept := r.shelf.kept[r.cursor]
		r.shelf.mu.Unlock()
		for i := r.find(in.From); i < len(r.entries) && in.Has(r.entries[i].Change.Loc); i++ {
			err := ctx.Err()
			if err == nil && !kept {
				err = fmt.Errorf("in a test: %w", feed.ErrGone)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			e := r.entries[i]
			if !yield(&e, nil) {
				return
			}
		}
	}
}

// newBaselineSite returns a site whose set a has baselines.
func newBaselineSite(t testing.TB, o settings) (*site, *shelf) {
	sh := &shelf{kept: map[feed.Cursor]resources{}, complete: true}
	o.Snapshot = sh.snapshot
	s := newSite(t, o)
	sh.log = s.log
	t.Cleanup(func() {
		s.shutdown()
		eventually(t, "every snapshot is released", func() bool { return sh.holding() == 0 })
	})
	return s, sh
}

// A mirror takes what a baseline, and the changes after it, say.
type mirror struct {
	resources map[string]uint64 // positions by loc
	seen      map[string]bool   // in this baseline
	ended     bool              // the baseline
	restarts  int
	cursor    string
	prefix    string
}

// An object is what every transport shows.
type object struct {
	message
	Baseline  *bool
	Complete  bool
	Count     int
	Restart   bool
	Position  string
	Content   string
	Resources []entry
}

func (m *mirror) take(o object) error {
	if o.Baseline == nil {
		for _, e := range o.Changes {
			if e.Change == "deleted" {
				delete(m.resources, e.Loc)
			} else {
				m.resources[e.Loc] = e.Position
			}
		}
		if o.After != m.cursor && !o.Diverged {
			return fmt.Errorf("after %s came %s", m.cursor, o.After)
		}
		m.cursor = o.Cursor
		return nil
	}
	if m.ended {
		return errors.New("a baseline after its end")
	}
	if o.Restart {
		m.restarts++
	}
	if o.Restart || m.resources == nil {
		m.resources, m.seen = map[string]uint64{}, map[string]bool{}
	} else if *o.Baseline && o.After != m.cursor {
		return fmt.Errorf("a gap: after %s came a part after %s", m.cursor, o.After)
	}
	last := ""
	for _, e := range o.Resources {
		if e.Loc <= last || m.seen[e.Loc] || e.Change == "deleted" || e.Datetime == "" {
			return fmt.Errorf("%+v came after %q", e, last)
		}
		last = e.Loc
		m.resources[e.Loc], m.seen[e.Loc] = e.Position, true
	}
	m.cursor = o.Cursor
	if m.ended = !*o.Baseline; m.ended && (len(m.resources) != o.Count || len(o.Position) != 32 || len(o.Content) != 32 || len(o.Changes) > 0) {
		return fmt.Errorf("%d resources were named before the end %+v", len(m.resources), o)
	}
	return nil
}

// is checks that the mirror holds what the log says.
func (m *mirror) is(t testing.TB, s *site, sh *shelf) {
	t.Helper()
	state, err := s.log.State(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sh.fold(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	for _, e := range r.entries {
		if strings.HasPrefix(e.Change.Loc, m.prefix) {
			want[e.Change.Loc] = e.Position
		}
	}
	if !maps.Equal(m.resources, want) {
		t.Errorf("the mirror holds %d resources, the set %d", len(m.resources), len(want))
	}
}

// name returns the end of the loc of resource i.
func name(i int) string { return fmt.Sprintf("%c/%06d", 'a'+rune(i%3), i) }

// history publishes n resources, updates some of them, and deletes others.
func (s *site) history(n int) {
	s.Helper()
	var all []resourcesync.Change
	for i := range n {
		all = append(all, change(name(i), resourcesync.Created, "text/plain"))
	}
	for i := 0; i < n; i += 10 {
		all = append(all, change(name(i), resourcesync.Updated, "text/plain"), change(name(i/2), resourcesync.Deleted, ""))
	}
	for part := range slices.Chunk(all, 1000) {
		s.publishChanges(part...)
	}
}

// A reading reads the objects of one connection.
type reading func() (object, error)

// transports begin a reading of the set a.
var transports = map[string]func(s *site, query, resume string) reading{
	"WebSocket JSON": func(s *site, query, resume string) reading { return s.dialObjects(query, resume, "") },
	"WebSocket XML":  func(s *site, query, resume string) reading { return s.dialObjects(query, resume, "rs.xml") },
	"event stream": func(s *site, query, resume string) reading {
		var header []string
		if resume != "" {
			header = []string{"Last-Event-ID", resume}
		}
		st := s.stream(query, header...)
		return func() (o object, err error) {
			for {
				e, err := st.event()
				switch {
				case err != nil:
					return o, err
				case e.comment:
					continue
				case e.name != "":
					return o, fmt.Errorf("%s: %s", e.name, e.data)
				}
				if err := json.Unmarshal([]byte(e.data), &o); err != nil || o.Cursor != e.id {
					return o, fmt.Errorf("%v: the id is %s of %.200s", err, e.id, e.data)
				}
				return o, nil
			}
		}
	},
	"pages": func(s *site, query, resume string) reading {
		next := s.url(resumed(query, resume))
		return func() (o object, err error) {
			resp, body := s.do(http.MethodGet, next)
			if resp.StatusCode != http.StatusOK {
				return o, fmt.Errorf("%s: %s", resp.Status, body)
			}
			if err := json.Unmarshal(body, &o); err != nil {
				return o, err
			}
			if next = o.Next; next != nextURL(s, resp) {
				return o, fmt.Errorf("the next page is %q, and %q", next, nextURL(s, resp))
			}
			return o, nil
		}
	},
}

// resumed replaces since in a query.
func resumed(query, resume string) string {
	q, _ := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if resume != "" {
		q.Set("since", resume)
	}
	return "?" + q.Encode()
}

func (s *site) dialObjects(query, resume, protocol string) reading {
	c := s.dial(resumed(query, resume), dialer{protocol: protocol})
	return func() (o object, err error) {
		_, b, err := c.ws.ReadMessage()
		if err != nil {
			return o, err
		}
		if protocol == "" {
			return o, json.Unmarshal(b, &o)
		}
		return parseXMLObject(b)
	}
}

func parseXMLObject(b []byte) (o object, err error) {
	d, err := resourcesync.ReadXML(strings.NewReader(string(b)), resourcesync.Limits{})
	if err != nil {
		return o, err
	}
	if o.message, err = parseXML(b); err != nil {
		return o, err
	}
	said := func(name string) string {
		_, rest, _ := strings.Cut(strings.SplitN(string(b), "<url>", 2)[0], " h:"+name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	if is := said("baseline"); is != "" {
		baseline := is == "true"
		o.Baseline = &baseline
		if baseline != (d.Capability == resourcesync.ResourceList) {
			return o, fmt.Errorf("the capability is %s", d.Capability)
		}
	}
	o.Complete, o.Restart, o.Position, o.Content = said("complete") == "true", said("restart") == "true", said("positionDigest"), said("contentDigest")
	if o.Baseline != nil {
		if _, err := fmt.Sscan(said("count"), &o.Count); err != nil {
			return o, err
		}
		for i := range o.Changes {
			o.Changes[i].Datetime = "in an attribute"
		}
		o.Resources, o.Changes = o.Changes, nil
	}
	return o, nil
}

// A baseline names what there is, over every transport, and then the changes follow.
func TestBaseline(t *testing.T) {
	for _, n := range []int{0, 1, 2_500} {
		s, sh := newBaselineSite(t, settings{sets: []string{"a"}})
		s.history(n)
		for name, begin := range transports {
			for _, prefix := range []string{"", "https://example.org/b/", "https://example.org/none"} {
				t.Run(fmt.Sprintf("%s/%d/%s", name, n, prefix), func(t *testing.T) {
					s := s.in(t)
					read, m := begin(s, "?since=baseline&limit=700&prefix="+prefix, ""), &mirror{prefix: prefix}
					for first := true; !m.ended; first = false {
						o, err := read()
						if err == nil {
							err = m.take(o)
						}
						if err != nil {
							t.Fatal(err)
						}
						if name != "pages" && first && (len(o.Resources) > 0 || !*o.Baseline) || !o.Complete {
							t.Errorf("it begins with %+v", o)
						}
					}
					m.is(t, s, sh)
					s.publishChanges(change("b/new", resourcesync.Created, ""), change("b/000001", resourcesync.Deleted, ""))
					end := s.publishChanges(change(strings.TrimPrefix(prefix, "https://example.org/")+"last", resourcesync.Created, ""))
					for m.cursor != end.String() {
						o, err := read()
						if err == nil {
							err = m.take(o)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					m.is(t, s, sh)
				})
			}
		}
	}
}

// A baseline is read to its end also if every connection ends after one part.
func TestBaselineResumes(t *testing.T) {
	s, sh := newBaselineSite(t, settings{})
	s.history(5_000)
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			m, resume := &mirror{}, ""
			for i := 0; !m.ended; i++ {
				read := begin(s, "?since=baseline&limit=700", resume)
				for n := 0; n < 2 && !m.ended; n++ {
					o, err := read()
					if err == nil {
						err = m.take(o)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				resume = m.cursor
				s.publish(1) // the snapshot stays the same
			}
			if m.restarts > 0 {
				t.Errorf("it began anew %d times", m.restarts)
			}
			read := begin(s, "?since=baseline", resume)
			head, err := s.log.State(t.Context(), "a")
			for err == nil && m.cursor != head.Head.String() {
				var o object
				if o, err = read(); err == nil {
					err = m.take(o)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			m.is(t, s, sh)
		})
	}
}

// When the snapshot is gone, the baseline begins anew on the same connection, and what
// the client then holds is no mixture.
func TestBaselineBeginsAnew(t *testing.T) {
	for name, begin := range transports {
		t.Run(name, func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{})
			s.history(5_000)
			sh.walks = 3
			read, m := begin(s, "?since=baseline", ""), &mirror{}
			for !m.ended {
				o, err := read()
				if err == nil {
					err = m.take(o)
				}
				if err != nil {
					t.Fatal(err)
				}
				if m.restarts == 0 {
					s.publishChanges(change("a/000000", resourcesync.Deleted, ""))
				}
			}
			if m.restarts != 1 {
				t.Errorf("it began anew %d times", m.restarts)
			}
			head, err := s.log.State(t.Context(), "a")
			for err == nil && m.cursor != head.Head.String() {
				var o object
				if o, err = read(); err == nil {
					err = m.take(o)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			m.is(t, s, sh)
		})
	}
}

// When the log does not reach back to the snapshot at the end, the baseline begins anew.
// When no snapshot is better, the client is told.
func TestBaselineBehindTheLog(t *testing.T) {
	for _, better := range []bool{true, false} {
		t.Run(fmt.Sprint(better), func(t *testing.T) {
			s, sh := newBaselineSite(t, settings{listSize: 10})
			s.history(40)
			resp, body := s.get("?since=baseline")
			var o object
			if err := json.Unmarshal(body, &o); err != nil || len(o.Resources) == 0 {
				t.Fatalf("%s: %v", body, err)
			}
			old, err := s.log.State(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			s.history(40)
			if _, err := s.log.Trim(t.Context(), "a", changelog.Retention{Count: 10}); err != nil {
				t.Fatal(err)
			}
			if !better {
				sh.mu.Lock()
				sh.kept[feed.Cursor{}] = sh.kept[old.Head]
				sh.mu.Unlock()
			}
			next := nextURL(t, resp)
			resp, body = s.do(http.MethodGet, next)
			if !better {
				s.problem(resp, body, 410, "since=baseline")
				read, err := s.dialObjects("?since=baseline", o.Cursor, ""), error(nil)
				for err == nil {
					_, err = read()
				}
				if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != 4410 {
					t.Errorf("a WebSocket ends with %v", err)
				}
				return
			}
			if err := json.Unmarshal(body, &o); err != nil || !o.Restart || !*o.Baseline || o.Cursor == old.Head.String() {
				t.Errorf("the next page is %s, %v", body, err)
			}
			for name, begin := range transports {
				if name == "pages" {
					continue
				}
				read, m := begin(s, "?since=baseline", next[strings.Index(next, "since=")+6:]), &mirror{}
				for !m.ended {
					o, err := read()
					if err == nil {
						err = m.take(o)
					}
					if err != nil {
						t.Fatal(name, err)
					}
				}
				if m.restarts != 1 {
					t.Errorf("%s: it began anew %d times", name, m.restarts)
				}
				m.is(t, s, sh)
			}
		})
	}
}

// What cannot be a baseline is refused before it begins.
func TestBaselineRefused(t *testing.T) {
	s, sh := newBaselineSite(t, settings{})
	s.publish(1)
	for _, test := range []struct {
		query  string
		status int
		says   string
	}{
		{"?since=baseline&change=created", 400, "prefix can"},
		{"?since=baseline&type=text/plain", 400, "prefix can"},
		{"?since=1-2~", 400, "no place in a baseline"},
		{"?since=~", 400, "no place in a baseline"},
		{"?since=baseline&since=1-2~3", 400, "since is there 2 times"},
		{"?since=baseline&limit=0", 400, "limit"},
	} {
		for _, accept := range []string{"application/json", "text/event-stream"} {
			if strings.Contains(test.query, "limit") && accept == "text/event-stream" {
				continue // only pages have a limit
			}
			resp, body := s.get(test.query, "Accept", accept)
			s.problem(resp, body, test.status, test.says)
		}
	}
	sh.fail = &feed.Error{Code: "busy", Status: 429, Retry: 5, Text: "busy", Detail: "ask again"}
	resp, body := s.get("?since=baseline", "Accept", "text/event-stream")
	s.problem(resp, body, 429, "ask again")
	if resp.Header.Get("Retry-After") != "5" {
		t.Error("no Retry-After")
	}
	without := newSite(t, settings{})
	without.publish(1)
	resp, body = without.get("?since=baseline")
	without.problem(resp, body, 404, "keeps no inventory")
}

// The header says what the JSON says, because NDJSON has no place for it.
func TestBaselineAsNDJSON(t *testing.T) {
	s, _ := newBaselineSite(t, settings{})
	s.history(30)
	next, lines := s.url("?since=baseline&limit=7"), 0
	for range 100 {
		resp, body := s.do(http.MethodGet, next, "Accept", "application/x-ndjson")
		var o object
		if err := json.Unmarshal([]byte(resp.Header.Get("RS-Baseline")), &o); err != nil || o.Baseline == nil {
			t.Fatalf("the header RS-Baseline is %q: %v", resp.Header.Get("RS-Baseline"), err)
		}
		for in := bufio.NewScanner(strings.NewReader(string(body))); in.Scan(); lines++ {
			if !strings.HasPrefix(in.Text(), `{"position":`) {
				t.Errorf("a line is %s", in.Text())
			}
		}
		if next = nextURL(t, resp); *o.Baseline {
			continue
		}
		if lines != o.Count || len(body) > 0 {
			t.Errorf("%d lines of %d resources, and %q at the end", lines, o.Count, body)
		}
		return
	}
	t.Error("it has no end")
}

// Clients that do not read take no memory, and others get their baselines.
func TestSlowBaseline(t *testing.T) {
	streams := budget.New(64<<20, patience)
	s, sh := newBaselineSite(t, settings{Options: subscribe.Options{WriteTimeout: patience, Streams: streams}, sendBuffer: smallSend})
	s.ordinary(10_000)
	const clients = 40
	for _, query := range []string{"?since=baseline&limit=10000", "?since=baseline"} {
		before, slow := heap(), []*slowPage{}
		for range clients {
			slow = append(slow, s.slowly(query, "application/json, text/event-stream;q=0."+fmt.Sprint(len(query)%2)))
		}
		eventually(t, "all of them are under way", func() bool { return sh.holding() == clients })
		if taken := streams.Taken(); taken != clients<<20 {
			t.Errorf("%d bytes of room are taken", taken)
		}
		if after := heap(); after > before+clients<<20 {
			t.Errorf("%d bytes are held", after-before)
		}
		if _, body := s.get("?since=baseline&limit=10000"); strings.Count(string(body), `{"position":`) != 10_000 {
			t.Errorf("another one gets %d bytes", len(body))
		}
		for _, p := range slow {
			_ = p.conn.Close()
		}
		eventually(t, "the room is free again", func() bool { return streams.Taken() == 0 })
	}
}

// A hub that stops tells a reader of a baseline where to go on.
func TestBaselineShutdown(t *testing.T) {
	s, _ := newBaselineSite(t, settings{sendBuffer: 8 << 10})
	s.ordinary(20_000)
	c := s.dial("?since=baseline", dialer{readBuffer: 8 << 10})
	done := make(chan struct{})
	for last := ""; ; {
		_, b, err := c.ws.ReadMessage()
		if last == "" {
			go func() { defer close(done); s.shutdown() }()
		}
		if err == nil {
			var o object
			if err := json.Unmarshal(b, &o); err != nil {
				t.Fatal(err)
			}
			last = o.Cursor
			continue
		}
		if !strings.Contains(err.Error(), last+" the hub is stopping") || !strings.Contains(last, "~") {
			t.Errorf("behind %s it ends with %v", last, err)
		}
		break
	}
	<-done
}
