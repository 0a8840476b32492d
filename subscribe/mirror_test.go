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

// A mirror takes what a baseline, and the changes after it, say.
type mirror struct {
	resources map[string]uint64 // positions by loc
	seen      map[string]bool   // in this baseline
	ended     bool              // the baseline
	restarts  int
	cursor    string
	filter    feed.Filter
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
	} else if o.After != m.cursor {
		return fmt.Errorf("a gap: after %s came an object after %s", m.cursor, o.After)
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
	m.ended = !*o.Baseline
	if m.filter.Collection != "" { // a small part of it is named, and nobody has counted that
		if o.Count > 0 || o.Position+o.Content != "" || len(o.Changes) > 0 {
			return fmt.Errorf("a baseline of a collection says %+v", o)
		}
		return nil
	}
	if m.ended && (len(m.resources) != o.Count || len(o.Position) != 32 || len(o.Content) != 32 || len(o.Changes) > 0) {
		return fmt.Errorf("%d resources were named before the end %+v", len(m.resources), o)
	}
	return nil
}

// read takes what is read next.
func (m *mirror) read(t testing.TB, read reading) object {
	t.Helper()
	o, err := read()
	if err == nil {
		err = m.take(o)
	}
	ok(t, err)
	return o
}

// readToHead reads until the mirror is at the head of the log.
func (m *mirror) readToHead(t testing.TB, s *site, read reading) {
	t.Helper()
	head, err := s.log.State(t.Context(), "a")
	ok(t, err)
	for m.cursor != head.Head.String() {
		m.read(t, read)
	}
}

// is checks that the mirror holds what the log says.
func (m *mirror) is(t testing.TB, s *site, sh *shelf) {
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
		t.Errorf("the mirror holds %d resources, the set %d", len(m.resources), len(want))
	}
}

// A reading reads the objects of one connection.
type reading func() (object, error)

// transports begin a reading of the set a.
var transports = map[string]func(s *site, query, resume string) reading{
	"WebSocket JSON": func(s *site, query, resume string) reading { return s.dialObjects(query, resume, "") },
	"WebSocket XML":  func(s *site, query, resume string) reading { return s.dialObjects(query, resume, "rs.xml") },
	"WebSocket zstd": func(s *site, query, resume string) reading { return s.dialObjects(query, resume, "rs.json+zstd") },
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
	said := func(name string) string {
		_, rest, _ := strings.Cut(strings.SplitN(string(b), "<url>", 2)[0], " h:"+name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	if is := said("baseline"); is != "" {
		baseline := is == "true"
		o.Baseline = &baseline
		if baseline != (d.Capability == resourcesync.Terms+"baseline") {
			return o, fmt.Errorf("the capability is %s", d.Capability)
		}
	}
	o.Complete, o.Restart, o.Position, o.Content = said("complete") == "true", said("restart") == "true", said("positionDigest"), said("contentDigest")
	if o.Baseline != nil {
		if count := said("count"); count != "" {
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
