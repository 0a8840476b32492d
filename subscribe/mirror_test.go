package subscribe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// A mirror applies a baseline and the changes after it.
type mirror struct {
	resources map[string]uint64 // positions by loc
	seen      map[string]bool   // locs in this baseline
	ended     bool              // whether the baseline has ended
	restarts  int
	cursor    string
	filter    feed.Filter
}

// An object is a message of any transport, including baselines.
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

func (m *mirror) apply(o object) error {
	if o.Baseline == nil {
		for _, e := range o.Changes {
			if e.Change == "deleted" {
				delete(m.resources, e.Loc)
			} else {
				m.resources[e.Loc] = e.Position
			}
		}
		if o.After != m.cursor && !o.Diverged {
			return fmt.Errorf("got changes after %s, want those after %s", o.After, m.cursor)
		}
		m.cursor = o.Cursor
		return nil
	}
	if m.ended {
		return errors.New("got a baseline after its end")
	}
	if o.Restart {
		m.restarts++
	}
	if o.Restart || m.resources == nil {
		m.resources, m.seen = map[string]uint64{}, map[string]bool{}
	} else if o.After != m.cursor {
		return fmt.Errorf("got an object after %s, want one after %s", o.After, m.cursor)
	}
	last := ""
	for _, e := range o.Resources {
		if e.Loc <= last || m.seen[e.Loc] || e.Change == "deleted" || e.Datetime == "" {
			return fmt.Errorf("got resource %+v after %q, want another order", e, last)
		}
		last = e.Loc
		m.resources[e.Loc], m.seen[e.Loc] = e.Position, true
	}
	m.cursor = o.Cursor
	m.ended = !*o.Baseline
	if m.filter.Collection != "" { // there are no counts
		if o.Count > 0 || o.Position+o.Content != "" || len(o.Changes) > 0 {
			return fmt.Errorf("got %+v for a collection, want no counts, digests and changes", o)
		}
		return nil
	}
	if m.ended && (len(m.resources) != o.Count || len(o.Position) != 32 || len(o.Content) != 32 || len(o.Changes) > 0) {
		return fmt.Errorf("got %d resources before the end %+v", len(m.resources), o)
	}
	return nil
}

// read reads and applies the next object.
func (m *mirror) read(t testing.TB, read readFunc) object {
	t.Helper()
	o, err := read()
	if err == nil {
		err = m.apply(o)
	}
	ok(t, err)
	return o
}

// readToHead reads until the mirror is at the head of the log.
func (m *mirror) readToHead(t testing.TB, s *site, read readFunc) {
	t.Helper()
	head, err := s.log.State(t.Context(), "a")
	ok(t, err)
	for m.cursor != head.Head.String() {
		m.read(t, read)
	}
}

// check checks that the mirror has the resources of the log.
func (m *mirror) check(t testing.TB, s *site, sh *snapshotStore) {
	t.Helper()
	state, err := s.log.State(t.Context(), "a")
	ok(t, err)
	r, err := sh.fold(t.Context(), state)
	ok(t, err)
	want := map[string]uint64{}
	for _, e := range r.entries {
		if m.filter.Match(&e.Change) {
			want[e.Change.Loc] = e.Position
		}
	}
	if !maps.Equal(m.resources, want) {
		t.Errorf("mirror: got %d resources, want the %d of the set", len(m.resources), len(want))
	}
}

// A readFunc reads the next object of a connection.
type readFunc func() (object, error)

// transports opens connections to the set a.
var transports = map[string]func(s *site, query, resume string) readFunc{
	"WebSocket JSON": func(s *site, query, resume string) readFunc { return s.dialObjects(query, resume, "") },
	"WebSocket XML":  func(s *site, query, resume string) readFunc { return s.dialObjects(query, resume, "rs.xml") },
	"WebSocket zstd": func(s *site, query, resume string) readFunc { return s.dialObjects(query, resume, "rs.json+zstd") },
	"event stream": func(s *site, query, resume string) readFunc {
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
					return o, fmt.Errorf("got id %s of event %.200s, want its cursor; error %v", e.id, e.data, err)
				}
				return o, nil
			}
		}
	},
	"pages": func(s *site, query, resume string) readFunc {
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
				return o, fmt.Errorf("got next %q and Link %q, want the same", next, nextURL(s, resp))
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

func (s *site) dialObjects(query, resume, protocol string) readFunc {
	c := s.dial(resumed(query, resume), dialer{protocol: protocol})
	return func() (o object, err error) {
		b, _, err := readMessage(c.ws)
		if err != nil {
			return o, err
		}
		if protocol != "rs.xml" {
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
	attribute := func(name string) string {
		_, rest, _ := strings.Cut(strings.SplitN(string(b), "<url>", 2)[0], " h:"+name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	if text := attribute("baseline"); text != "" {
		baseline := text == "true"
		o.Baseline = &baseline
		if baseline != (d.Capability == resourcesync.Terms+"baseline") {
			return o, fmt.Errorf("got capability %s with h:baseline %s", d.Capability, text)
		}
	}
	o.Complete, o.Restart, o.Position, o.Content = attribute("complete") == "true", attribute("restart") == "true", attribute("positionDigest"), attribute("contentDigest")
	if o.Baseline != nil {
		if count := attribute("count"); count != "" {
			if _, err := fmt.Sscan(count, &o.Count); err != nil {
				return o, err
			}
		}
		for i := range o.Changes {
			o.Changes[i].Datetime = "in an attribute"
		}
		o.Resources, o.Changes = o.Changes, nil
	}
	return o, nil
}
